import json
from pathlib import Path

import pytest

from klet.testing.conformance.spec_sets import (
    CONFORMANCE,
    DOZEN,
    DRA,
    NODE,
    RESIZE,
    SETS,
    STORAGE,
    Selection,
    choose_specs,
    exactly,
    leave_out_drivers,
)
from klet.version import KUBERNETES_VERSION

RECORD = Path(__file__).parents[3] / "data/conformance" / KUBERNETES_VERSION / "node/upstream.json"


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
    assert NODE.selection.takes(name) is expected


@pytest.mark.parametrize(
    ("spec_set", "name", "expected"),
    [
        pytest.param(CONFORMANCE, "[sig-apps] Job should delete a job [Conformance]", True, id="workloads"),
        pytest.param(CONFORMANCE, "[sig-network] DNS should provide DNS for services [Conformance]", False, id="DNS"),
        pytest.param(
            CONFORMANCE,
            "[sig-network] Services should serve a basic endpoint from pods [Conformance]",
            False,
            id="service proxy",
        ),
        pytest.param(STORAGE, "[sig-storage] EmptyDir volumes should support x", True, id="emptyDir"),
        pytest.param(
            STORAGE, "[sig-storage] In-tree Volumes [Driver: nfs] x", False, id="a driver that needs a server"
        ),
        pytest.param(RESIZE, "[sig-node] Pod InPlace Resize Container guaranteed qos x", True, id="resize"),
        pytest.param(DRA, "[sig-node] [DRA] kubelet [Feature:DynamicResourceAllocation] x", True, id="claims"),
        pytest.param(DRA, "[sig-node] [DRA] x [Alpha] [Feature:OffByDefault]", False, id="claims of the future"),
    ],
)
def test_the_other_sets(spec_set, name, expected):
    assert spec_set.selection.takes(name) is expected


def test_the_dozen_is_twelve_specs_of_the_default_set():
    recorded = json.loads(RECORD.read_text())
    chosen = [name for name in (*recorded["passed"], *recorded["failed"]) if DOZEN.selection.takes(name)]
    assert len(chosen) == 12
    assert all(any(Selection((focus,)).takes(name) for name in chosen) for focus in DOZEN.selection.focus)


@pytest.mark.parametrize(
    ("spec_set", "name", "issue"),
    [
        pytest.param(STORAGE, "[sig-storage] PersistentVolumes-local [Volume type: dir] One pod x", 19, id="claims"),
        pytest.param(STORAGE, "[sig-storage] In-tree Volumes [Driver: hostPath] Inline-volume x", None, id="inline"),
        pytest.param(RESIZE, "[sig-node] Pod InPlace Resize Container burstable pods - x", 23, id="resize"),
        pytest.param(RESIZE, "[sig-node] Pod InPlace Resize Container apply invalid x", None, id="the API alone"),
        pytest.param(DRA, "[sig-node] [DRA] kubelet x", 22, id="resource claims"),
    ],
)
def test_specs_of_features_to_come_name_their_issue(spec_set, name, issue):
    awaited = spec_set.find_awaited(name)
    assert (awaited and awaited.issue) == issue


@pytest.mark.parametrize(
    ("focus", "skip", "expected"),
    [
        pytest.param((), None, NODE.selection, id="nothing named is the set"),
        pytest.param(
            ("Probing",), None, Selection(("Probing",), NODE.selection.skip), id="a focus keeps what is skipped"
        ),
        pytest.param(
            (), ("udp",), Selection(NODE.selection.focus, ("udp",)), id="a skip takes the place of that of the set"
        ),
        pytest.param(("Serial",), ("",), Selection(("Serial",), ()), id="an empty skip skips nothing"),
    ],
)
def test_choose_specs(focus, skip, expected):
    assert choose_specs(NODE, focus=focus, skip=skip, with_awaited=True) == expected


def test_klet_skips_what_it_waits_for():
    skip = choose_specs(RESIZE, focus=(), skip=None, with_awaited=False).skip
    assert skip == (*RESIZE.selection.skip, RESIZE.awaited[0].pattern)


def test_without_drivers_their_specs_are_left_out():
    assert leave_out_drivers(DRA.selection, DRA).skip == (*DRA.selection.skip, DRA.drivers)
    assert leave_out_drivers(NODE.selection, NODE) == NODE.selection


def test_sets_are_found_by_name():
    assert [spec_set.name for spec_set in SETS.values()] == list(SETS)


def test_exactly_these_specs_run():
    chosen = exactly(["[sig-node] Pods (a|b) should.run", "x"])
    assert chosen.takes("[sig-node] Pods (a|b) should.run")
    assert chosen.takes("Kubernetes e2e suite [sig-node] Pods (a|b) should.run")
    assert not chosen.takes("[sig-node] Pods (a|b) should.run [Slow]")
    assert not chosen.takes("[sig-node] Pods (a|b) should-run")
    assert not chosen.takes("xy")
