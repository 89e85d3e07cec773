"""Wall time for commands that never wait: without asyncio, which takes long to import."""

from datetime import UTC, datetime


class WallClock:
    """The machine's wall clock."""

    def now(self) -> datetime:
        """Return UTC wall time, with its zone."""
        return datetime.now(UTC)
