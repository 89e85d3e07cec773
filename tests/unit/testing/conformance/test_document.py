from pathlib import Path

import pytest

from klet.testing.conformance.document import DOCUMENT, read_reasons, render_document, write_document
from klet.testing.conformance.results import RecordUnreadable, Result
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
        klet=result("klet", passed="ab", failed="cde"),
        upstream=result("upstream", passed="acd", failed="be"),
        reasons={"c": "not yet", "e": "no IPv6"},
    )
    assert (
        "| klet | v1.2.3 | 2026-01-02 | 2 | 5 | 9 s |\n| upstream's kubelet | v1.2.3 | 2026-01-02 | 3 | 5 | 9 s |"
        in made
    )
    assert "## Only upstream's kubelet passes\n\n- `c`: not yet\n- `d`: no reason is known\n" in made
    assert "## Only klet passes\n\n- `b`: no reason is known\n" in made
    assert made.endswith("## Both fail\n\n- `e`: no IPv6\n")


def test_no_difference_is_said_too():
    same = result("klet", passed="ab", failed="")
    made = render_document(klet=same, upstream=same, reasons={})
    assert made.count("\n\nNone.\n") == 3


def test_one_record_is_a_table_alone():
    assert "##" not in render_document(klet=None, upstream=result("upstream", passed="a", failed=""), reasons={})


@pytest.mark.parametrize("text", ["[]", "{"], ids=["no object", "no JSON"])
def test_reasons_that_can_not_be_read(tmp_path, text):
    (tmp_path / "reasons.json").write_text(text)
    with pytest.raises(RecordUnreadable, match=r"reasons\.json"):
        read_reasons(tmp_path / "reasons.json")


def test_the_page_is_what_the_records_say(tmp_path):
    (tmp_path / "docs").mkdir()
    assert write_document(tmp_path, RECORDS).read_text() == (ROOT / DOCUMENT).read_text()
