"""systemd over D-Bus. Only the composition root imports this module, and only for the systemd driver."""

import asyncio
from collections.abc import Iterable
from datetime import timedelta

from dbus_fast import DBusFastError, Message, MessageType, Variant
from dbus_fast.aio import MessageBus

from klet.api.times import Duration
from klet.host.cgroups.systemd import UnitProperty
from klet.host.errors import SystemdError, SystemdTimeout, SystemdUnavailable

SYSTEM_BUS = "unix:path=/run/dbus/system_bus_socket"
CALL_DEADLINE = timedelta(seconds=30)
_DBUS = "org.freedesktop.DBus"
_NAME = "org.freedesktop.systemd1"
_PATH = "/org/freedesktop/systemd1"
_MANAGER = "org.freedesktop.systemd1.Manager"
_JOB_REMOVED = f"type='signal',sender='{_NAME}',path='{_PATH}',interface='{_MANAGER}',member='JobRemoved'"


class SystemdConnection:
    """The SystemdBus of a real machine. Connects at the first call, and once more after the connection was lost."""

    def __init__(self, *, address: str = SYSTEM_BUS) -> None:
        self._address = address
        self._bus: MessageBus | None = None
        self._connecting = asyncio.Lock()
        self._watches: set[_JobWatch] = set()
        self._version: int | None = None

    async def version(self) -> int:
        if self._version is None:
            reply = await self._call("Get", "ss", (_MANAGER, "Version"), interface=f"{_DBUS}.Properties")
            self._version = parse_version(str(reply.body[0].value))
        return self._version

    async def start_transient_unit(self, unit: str, properties: tuple[UnitProperty, ...], deadline: timedelta) -> str:
        no_auxiliary_units: list[object] = []
        body = (unit, "replace", _pairs(properties), no_auxiliary_units)
        return await self._job(unit, "StartTransientUnit", "ssa(sv)a(sa(sv))", body, deadline)

    async def set_unit_properties(self, unit: str, properties: tuple[UnitProperty, ...]) -> None:
        await self._call("SetUnitProperties", "sba(sv)", (unit, True, _pairs(properties)))

    async def stop_unit(self, unit: str, deadline: timedelta) -> str:
        return await self._job(unit, "StopUnit", "ss", (unit, "replace"), deadline)

    async def reset_failed_unit(self, unit: str) -> None:
        await self._call("ResetFailedUnit", "s", (unit,))

    async def close(self) -> None:
        bus, self._bus = self._bus, None
        if bus is not None and bus.connected:
            await _disconnect(bus)

    async def _job(self, unit: str, member: str, signature: str, body: Iterable[object], deadline: timedelta) -> str:
        # The signal may be handled before the task that waits for the reply runs again: watch before calling.
        watch = _JobWatch(unit)
        self._watches.add(watch)
        try:
            async with asyncio.timeout(deadline.total_seconds()):
                reply = await self._call(member, signature, body)
                return await watch.result(str(reply.body[0]))
        except TimeoutError:
            within = Duration.of(deadline).wire()
            raise SystemdTimeout(f"systemd did not finish {member} of {unit} within {within}") from None
        finally:
            self._watches.discard(watch)

    async def _call(self, member: str, signature: str, body: Iterable[object], *, interface: str = _MANAGER) -> Message:
        arguments = list(body)
        for is_last in (False, True):
            bus = await self._connected()
            try:
                async with asyncio.timeout(CALL_DEADLINE.total_seconds()):
                    reply = await bus.call(
                        Message(_NAME, _PATH, interface, member, signature=signature, body=arguments)
                    )
            except TimeoutError:
                raise SystemdTimeout(f"systemd did not answer {member} within {CALL_DEADLINE}") from None
            except (OSError, EOFError) as error:
                if is_last:
                    raise SystemdUnavailable(f"connection to systemd lost in {member}: {error!r}") from error
                continue
            return _checked(member, reply)
        raise SystemdUnavailable(f"connection to systemd lost in {member}")

    async def _connected(self) -> MessageBus:
        async with self._connecting:
            if self._bus is None or not self._bus.connected:
                self._bus = await self._connect()
            return self._bus

    async def _connect(self) -> MessageBus:
        try:
            async with asyncio.timeout(CALL_DEADLINE.total_seconds()):
                bus = await MessageBus(bus_address=self._address).connect()
                try:
                    await self._subscribe(bus)
                except BaseException:
                    await _disconnect(bus)
                    raise
        except (OSError, EOFError, DBusFastError) as error:
            raise SystemdUnavailable(f"cannot reach systemd at {self._address}: {error}") from error
        return bus

    async def _subscribe(self, bus: MessageBus) -> None:
        bus.add_message_handler(self._on_message)
        match = Message(_DBUS, "/org/freedesktop/DBus", _DBUS, "AddMatch", signature="s", body=[_JOB_REMOVED])
        _checked("AddMatch", await bus.call(match))
        _checked("Subscribe", await bus.call(Message(_NAME, _PATH, _MANAGER, "Subscribe")))

    def _on_message(self, message: Message) -> None:
        if message.message_type is MessageType.SIGNAL and message.member == "JobRemoved":
            _, job, unit, result = message.body
            for watch in self._watches:
                watch.saw(str(job), str(unit), str(result))


class _JobWatch:
    """Collects the results of the jobs of one unit while a call is under way."""

    def __init__(self, unit: str) -> None:
        self._unit = unit
        self._results: dict[str, str] = {}
        self._arrived = asyncio.Event()

    def saw(self, job: str, unit: str, result: str) -> None:
        if unit == self._unit:
            self._results[job] = result
            self._arrived.set()

    async def result(self, job: str) -> str:
        while job not in self._results:
            self._arrived.clear()
            await self._arrived.wait()
        return self._results[job]


def parse_version(text: str) -> int:
    """Return the leading number of `252.33-1~deb12u1` or `v252`; 0, without newer properties, if there is none."""
    digits = ""
    for character in text.removeprefix("v"):
        if not character.isdigit():
            break
        digits += character
    return int(digits or 0)


def _pairs(properties: Iterable[UnitProperty]) -> list[list[object]]:
    return [
        [each.name, Variant(each.signature, list(each.value) if isinstance(each.value, tuple) else each.value)]
        for each in properties
    ]


async def _disconnect(bus: MessageBus) -> None:
    bus.disconnect()
    await bus.wait_for_disconnect()  # type: ignore[no-untyped-call]  # dbus-fast leaves it untyped


def _checked(member: str, reply: Message | None) -> Message:
    if reply is None:
        raise SystemdUnavailable(f"connection to systemd closed in {member}")
    if reply.message_type is MessageType.ERROR:
        text = str(reply.body[0]) if reply.body else ""
        raise SystemdError(f"systemd refused {member}: {text} ({reply.error_name})", name=reply.error_name or "")
    return reply
