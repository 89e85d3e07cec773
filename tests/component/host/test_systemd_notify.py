"""A service manager that a test plays."""

import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from klet.host.systemd_notify import READY, find_service_manager


@contextmanager
def listening(address: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(5)
        manager.bind(address)
        yield manager


def test_a_socket_in_a_directory(tmp_path):
    path = str(tmp_path / "notify")
    with listening(path) as manager:
        assert find_service_manager({"NOTIFY_SOCKET": path}).notify(READY) is True
        assert manager.recv(100) == b"READY=1"


@pytest.mark.parametrize("name", [f"klet-{uuid.uuid4()}"], ids=["a name without a file"])
def test_a_socket_in_the_abstract_namespace(name):
    with listening(f"\0{name}") as manager:
        assert find_service_manager({"NOTIFY_SOCKET": f"@{name}"}).notify(READY) is True
        assert manager.recv(100) == b"READY=1"
