"""A systemd for tests: owns `org.freedesktop.systemd1` on a private bus and keeps transient units in memory."""

from collections.abc import Mapping

from dbus_fast import Message, MessageType, Variant
from dbus_fast.aio import MessageBus
from msgspec import Struct, field

NAME = "org.freedesktop.systemd1"
PATH = "/org/freedesktop/systemd1"
MANAGER = "org.freedesktop.systemd1.Manager"


class FakeUnit(Struct):
    """A transient unit and its properties as they came over the bus."""

    properties: dict[str, Variant] = field(default_factory=dict)

    def values(self) -> dict[str, object]:
        return {name: variant.value for name, variant in self.properties.items()}


class FakeSystemd:
    """Answers the manager calls of the cgroup driver and finishes each job at once.

    `results` gives units another job result than `done`; a unit in `hanging` never finishes a job.
    `calls` is the list of members called, with the unit.
    """

    def __init__(self, *, address: str, version: str = "252.33-1~deb12u1") -> None:
        self._address = address
        self._version = version
        self._bus: MessageBus | None = None
        self._jobs = 0
        self.units: dict[str, FakeUnit] = {}
        self.calls: list[tuple[str, str]] = []
        self.results: dict[str, str] = {}
        self.hanging: set[str] = set()

    async def start(self) -> None:
        self._bus = await MessageBus(bus_address=self._address).connect()
        self._bus.add_message_handler(self._on_message)
        await self._bus.request_name(NAME)

    async def stop(self) -> None:
        if self._bus is not None:
            self._bus.disconnect()
            await self._bus.wait_for_disconnect()  # type: ignore[no-untyped-call]  # dbus-fast leaves it untyped

    def _on_message(self, message: Message) -> Message | bool | None:
        if message.message_type is not MessageType.METHOD_CALL or message.path != PATH:
            return None
        member = message.member or ""
        if member == "Get":
            return Message.new_method_return(message, "v", [Variant("s", self._version)])
        self.calls.append((member, str(message.body[0]) if message.body else ""))
        match member:
            case "Subscribe":
                return Message.new_method_return(message)
            case "StartTransientUnit":
                return self._start_unit(message)
            case "SetUnitProperties":
                return self._set_properties(message)
            case "StopUnit":
                return self._stop_unit(message)
            case "ResetFailedUnit":
                return self._reset_failed(message)
            case _:
                return None

    def _start_unit(self, message: Message) -> Message | bool:
        unit, _, properties, _ = message.body
        if unit in self.units:
            return self._error(message, "UnitExists", f"Unit {unit} was already loaded or has a fragment file.")
        self.units[unit] = FakeUnit(dict(properties))
        return self._answer_with_job(message, unit)

    def _set_properties(self, message: Message) -> Message:
        unit, _, properties = message.body
        if unit not in self.units:
            return self._no_such_unit(message, unit)
        changed: Mapping[str, Variant] = dict(properties)
        self.units[unit].properties.update(changed)
        return Message.new_method_return(message)

    def _stop_unit(self, message: Message) -> Message | bool:
        unit = message.body[0]
        if self.units.pop(unit, None) is None:
            return self._no_such_unit(message, unit)
        return self._answer_with_job(message, unit)

    def _reset_failed(self, message: Message) -> Message:
        unit = message.body[0]
        if self.results.get(unit, "done") == "done":
            return self._no_such_unit(message, unit)
        self.units.pop(unit, None)
        return Message.new_method_return(message)

    def _answer_with_job(self, message: Message, unit: str) -> bool:
        """Return the reply, and right behind it the signal, as systemd sends them."""
        self._jobs += 1
        job = f"{PATH}/job/{self._jobs}"
        self._send(Message.new_method_return(message, "o", [job]))
        if unit not in self.hanging:
            body = [self._jobs, job, unit, self.results.get(unit, "done")]
            self._send(Message.new_signal(PATH, MANAGER, "JobRemoved", "uoss", body))
        return True

    def _no_such_unit(self, message: Message, unit: str) -> Message:
        return self._error(message, "NoSuchUnit", f"Unit {unit} not loaded.")

    def _error(self, message: Message, name: str, text: str) -> Message:
        return Message.new_error(message, f"{NAME}.{name}", text)

    def _send(self, message: Message) -> None:
        if self._bus is not None:
            self._bus.send(message)
