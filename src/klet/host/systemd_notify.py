"""Notifies the service manager that started the process: sd_notify(3) and its watchdog."""

import socket
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from klet.host.errors import HostError

READY: Final = "READY=1"
WATCHDOG: Final = "WATCHDOG=1"

_DEADLINE: Final = 1.0
"""A service manager that does not read its socket must not stop the agent."""


class NotifyError(HostError):
    """The service manager could not be notified."""


class ServiceManager:
    """The socket in NOTIFY_SOCKET, if there is one."""

    def __init__(self, *, address: str) -> None:
        self._address = address

    def notify(self, state: str) -> bool:
        """Send a state such as `READY=1`; return False if there is no socket. Raises NotifyError."""
        if not self._address:
            return False
        # An address that begins with @ is in the abstract namespace.
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
                channel.settimeout(_DEADLINE)
                channel.connect(address)
                channel.send(state.encode())
        except OSError as error:
            raise NotifyError(f"cannot send {state} to NOTIFY_SOCKET {self._address}: {error}") from error
        return True


def find_service_manager(environment: Mapping[str, str]) -> ServiceManager:
    return ServiceManager(address=environment.get("NOTIFY_SOCKET", ""))


def read_watchdog(environment: Mapping[str, str], *, pid: int) -> timedelta | None:
    """Return how long the service manager waits for a sign of life; None if it does not. Raises NotifyError."""
    period, owner = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
    if not period:
        return None
    microseconds = _number(period, "WATCHDOG_USEC")
    if microseconds <= 0:
        raise NotifyError("error WATCHDOG_USEC must be a positive number")
    # The variables are inherited: they may be meant for a parent.
    if owner and _number(owner, "WATCHDOG_PID") != pid:
        return None
    return timedelta(microseconds=microseconds)


def _number(text: str, name: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise NotifyError(f'error converting {name}: "{text}" is not a number') from None
