"""What the environment says of the service manager."""

from datetime import timedelta

import pytest

from klet.host.systemd_notify import NotifyError, ServiceManager, find_service_manager, read_watchdog


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        pytest.param({}, None, id="there is no watchdog"),
        pytest.param({"WATCHDOG_USEC": "30000000"}, timedelta(seconds=30), id="a watchdog for any process"),
        pytest.param({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "7"}, timedelta(seconds=30), id="for us"),
        pytest.param({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "8"}, None, id="for another process"),
    ],
)
def test_read_watchdog(environment, expected):
    assert read_watchdog(environment, pid=7) == expected


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        pytest.param({"WATCHDOG_USEC": "soon"}, 'error converting WATCHDOG_USEC: "soon" is not a number',
                     id="no number"),
        pytest.param({"WATCHDOG_USEC": "0"}, "error WATCHDOG_USEC must be a positive number", id="zero"),
        pytest.param({"WATCHDOG_USEC": "5", "WATCHDOG_PID": "me"},
                     'error converting WATCHDOG_PID: "me" is not a number', id="no process"),
    ],
)  # fmt: skip
def test_a_watchdog_that_cannot_be_read(environment, message):
    with pytest.raises(NotifyError, match=f"^{message}$"):
        read_watchdog(environment, pid=7)


def test_without_a_socket_nobody_listens():
    manager = find_service_manager({})
    assert manager.notify("READY=1") is False


def test_a_socket_that_is_not_there(tmp_path):
    manager = find_service_manager({"NOTIFY_SOCKET": str(tmp_path / "none")})
    with pytest.raises(NotifyError, match="cannot send READY=1 to NOTIFY_SOCKET"):
        manager.notify("READY=1")


def test_a_path_that_no_socket_can_have():
    with pytest.raises(NotifyError):
        ServiceManager(address="/" + "x" * 200).notify("READY=1")
