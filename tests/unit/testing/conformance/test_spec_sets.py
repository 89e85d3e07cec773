import pytest

from klet.testing.conformance.spec_sets import NODE, Selection, choose_specs, exactly


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("[sig-node] Pods should run [NodeConformance] [Conformance]", True, id="a spec of nodes"),
        pytest.param("[sig-apps] Job should run [Conformance]", False, id="not one of nodes"),
        pytest.param("[sig-node] Pods [Serial] should pull [NodeConformance]", False, id="one that disturbs others"),
        pytest.param("[sig-node] Pods should cap [Slow] [NodeConformance]", False, id="one that takes long"),
        pytest.param("[sig-node] X [Feature:Y] [NodeConformance]", False, id="one of an optional feature"),
        pytest.param("[sig-node] X [FeatureGate:Y] [Beta] [NodeConformance]", True, id="one of a gate that is on"),
        pytest.param("[sig-node] X [FeatureGate:Y] [Alpha] [NodeConformance]", False, id="one of a gate that is off"),
    ],
)
def test_the_default_set(name, expected):
    assert NODE.takes(name) is expected


@pytest.mark.parametrize(
    ("focus", "skip", "expected"),
    [
        pytest.param((), None, NODE, id="nothing named is the default"),
        pytest.param(("Probing",), None, Selection(("Probing",), NODE.skip), id="a focus keeps what is skipped"),
        pytest.param((), ("udp",), Selection(NODE.focus, ("udp",)), id="a skip takes the place of the default"),
        pytest.param(("Serial",), ("",), Selection(("Serial",), ()), id="an empty skip skips nothing"),
    ],
)
def test_choose_specs(focus, skip, expected):
    assert choose_specs(focus=focus, skip=skip) == expected


def test_exactly_these_specs_run():
    chosen = exactly(["[sig-node] Pods (a|b) should.run", "x"])
    assert chosen.takes("[sig-node] Pods (a|b) should.run")
    assert chosen.takes("Kubernetes e2e suite [sig-node] Pods (a|b) should.run")
    assert not chosen.takes("[sig-node] Pods (a|b) should.run [Slow]")
    assert not chosen.takes("[sig-node] Pods (a|b) should-run")
    assert not chosen.takes("xy")
