import pytest

from klet.testing.conformance.__main__ import main, make_request, parse
from klet.testing.conformance.spec_sets import NODE, Selection
from klet.version import KUBERNETES_VERSION


def test_the_default_is_klet_with_the_node_set(monkeypatch, tmp_path):
    monkeypatch.setenv("KLET_CACHE", str(tmp_path))
    made = make_request(parse([]))
    assert (made.kubelet, made.selection, made.procs, made.repeat) == ("klet", NODE, 6, 1)
    assert made.records.parts[-2:] == ("conformance", KUBERNETES_VERSION)
    assert made.results == tmp_path / "upstream" / KUBERNETES_VERSION / "conformance" / "klet"


def test_focus_and_skip_may_be_repeated():
    made = make_request(parse(["--focus=a", "--focus=b", "--skip=", "--kubelet=upstream", "-o", "json"]))
    assert (made.kubelet, made.selection, made.as_json) == ("upstream", Selection(("a", "b"), ()), True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["--focus", "("], "no regular expression", id="a pattern that is none"),
        pytest.param(["--procs", "0"], "less than 1", id="no process"),
        pytest.param(["--repeat", "x"], "invalid positive value", id="no number"),
        pytest.param(["--kubelet", "other"], "invalid choice", id="an unknown agent"),
        pytest.param(["--record", "--focus=a"], "--record is for the default set", id="a record of a part"),
        pytest.param(["--record", "--skip="], "--record is for the default set", id="a record of more"),
        pytest.param(["--only-failed", "--focus", "a"], "--only-failed chooses", id="two choices of specs"),
    ],
)
def test_wrong_arguments_end_with_2_and_the_reason(arguments, message, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
