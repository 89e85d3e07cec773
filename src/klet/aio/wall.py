"""The time of day for commands that never wait: it comes without an event loop, which takes long to import."""

from datetime import UTC, datetime


class WallClock:
    """The machine's wall clock."""

    def now(self) -> datetime:
        """Aware UTC wall time."""
        return datetime.now(UTC)
