"""The board of registered CSI drivers (upstream: the drivers store)."""

from klet.aio.broadcast import Broadcast, Subscription
from klet.model.csi import RegisteredDriver


class CsiDriverBoard:
    """The drivers of this node by name. Written by their registration only."""

    def __init__(self) -> None:
        self._drivers: dict[str, RegisteredDriver] = {}
        self._changes = Broadcast[str]()

    def find(self, name: str) -> RegisteredDriver | None:
        return self._drivers.get(name)

    def names(self) -> tuple[str, ...]:
        return tuple(self._drivers)

    def put(self, driver: RegisteredDriver) -> None:
        self._drivers[driver.name] = driver
        self._changes.send(driver.name)

    def remove(self, name: str) -> None:
        """Forget a driver; one that is not there is no error."""
        if self._drivers.pop(name, None) is not None:
            self._changes.send(name)

    def changes(self) -> Subscription[str]:
        """Subscribe to the names of drivers that come, change or go."""
        return self._changes.subscribe()
