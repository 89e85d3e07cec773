import pytest

from klet.cli.install.systemd import UnitState, parse_show

SHOWN = """\
Id=klet.service
LoadState=loaded
ActiveState=active
SubState=running
UnitFileState=enabled
MainPID=42
Result=success

Id=other.service
LoadState=not-found
ActiveState=inactive
SubState=dead
UnitFileState=
MainPID=0
Result=success
"""


def test_parse_show():
    shown = parse_show(SHOWN)
    assert shown["klet.service"] == UnitState(
        name="klet.service",
        load="loaded",
        active="active",
        sub="running",
        file="enabled",
        main_pid=42,
        result="success",
    )
    assert not shown["other.service"].is_loaded


@pytest.mark.parametrize("text", ["", "\n\n", "nonsense", "MainPID=x\nLoadState=loaded", "Id=\n"])
def test_what_systemctl_never_prints_names_no_unit(text):
    assert parse_show(text) == {}


@pytest.mark.parametrize(
    ("active", "is_active", "is_idle"),
    [
        pytest.param("active", True, False, id="it runs"),
        pytest.param("reloading", True, False, id="it reads its configuration again"),
        pytest.param("activating", False, False, id="it starts, or waits for its next start"),
        pytest.param("deactivating", False, False, id="it stops"),
        pytest.param("failed", False, True, id="it has failed for good"),
        pytest.param("inactive", False, True, id="it was never started"),
    ],
)
def test_states(active, is_active, is_idle):
    state = UnitState(name="x", active=active)
    assert (state.is_active, state.is_idle) == (is_active, is_idle)
