from pathlib import Path

import msgspec
import pytest

from klet.testing.conformance.document import DOCUMENT, NO_REASON, Runs, read_reasons, render_document, write_document
from klet.testing.conformance.results import RecordUnreadable, Result
from klet.testing.conformance.spec_sets import DRA, NODE
from klet.version import KUBERNETES_VERSION

ROOT = Path(__file__).parents[4]
RECORDS = ROOT / "tests/data/conformance" / KUBERNETES_VERSION


def result(kubelet: str, *, passed: str, failed: str) -> Result:
    return Result(
        release="v1.2.3",
        kubelet=kubelet,
        date="2026-01-02",
        runs=1,
        seconds=9,
        focus=(),
        skip=(),
        passed=tuple(passed),
        failed=tuple(failed),
    )


def test_each_difference_has_its_reason():
    made = render_document(
        [
            Runs(
                NODE,
                klet=result("klet", passed="ab", failed="cde"),
                upstream=result("upstream", passed="acd", failed="be"),
            )
        ],
        reasons={"c": "not yet", "e": "no IPv6"},
    )
    assert (
        "| node | klet | v1.2.3 | 2026-01-02 | 2 | 5 | 9 s |\n"
        "| node | upstream's kubelet | v1.2.3 | 2026-01-02 | 3 | 5 | 9 s |"
    ) in made
    assert "### Only upstream's kubelet passes\n\n- `c`: not yet\n- `d`: no reason is known\n" in made
    assert "### Only klet passes\n\n- `b`: no reason is known\n" in made
    assert made.endswith("### Both fail\n\n- `e`: no IPv6\n")


def test_what_waits_for_an_issue_names_it():
    upstream = msgspec.structs.replace(
        result("upstream", passed="", failed=""),
        passed=("[DRA] kubelet b", "[DRA] kubelet a", "x"),
        skip=(DRA.drivers,),
    )
    klet = msgspec.structs.replace(result("klet", passed="x", failed=""))
    made = render_document([Runs(DRA, klet=klet, upstream=upstream)], {})
    assert "- issue 22, resource claims: 2 specs\n  - `[DRA] kubelet a`\n  - `[DRA] kubelet b`\n" in made
    assert "Not run with either: specs that match" in made


def test_what_only_upstream_ran_and_failed_is_listed_too():
    made = render_document(
        [Runs(NODE, klet=result("klet", passed="a", failed=""), upstream=result("upstream", passed="a", failed="bcd"))],
        reasons={"b": "no IPv6", "^[cx]$": "no swap"},
    )
    end = "- `b`: no IPv6\n- `c`: no swap\n- `d`: no reason is known\n"
    assert made.endswith(f"### Upstream's kubelet fails, and klet does not run\n\n{end}")


def test_no_difference_is_said_too():
    same = result("klet", passed="ab", failed="")
    assert render_document([Runs(NODE, klet=same, upstream=same)], {}).count("\n\nNone.\n") == 3


def test_one_record_is_no_comparison():
    made = render_document([Runs(NODE, klet=None, upstream=result("upstream", passed="a", failed=""))], {})
    assert "## node" in made
    assert "###" not in made


def test_a_set_without_records_does_not_appear():
    assert "## node" not in render_document([Runs(NODE, klet=None, upstream=None)], {})


@pytest.mark.parametrize("text", ["[]", "{"], ids=["no object", "no JSON"])
def test_reasons_that_can_not_be_read(tmp_path, text):
    (tmp_path / "reasons.json").write_text(text)
    with pytest.raises(RecordUnreadable, match=r"reasons\.json"):
        read_reasons(tmp_path / "reasons.json")


def test_the_page_is_what_the_records_say(tmp_path):
    (tmp_path / "docs").mkdir()
    assert write_document(tmp_path, RECORDS).read_text() == (ROOT / DOCUMENT).read_text()


def test_every_difference_on_the_page_has_a_reason():
    assert NO_REASON not in (ROOT / DOCUMENT).read_text()
