"""Wall time for commands that never wait: without asyncio, which takes long to import."""

from datetime import UTC, datetime


class WallClock:
    """The machine's wall clock."""

    def now(self) -> datetime:
        """Aware UTC wall time."""
        return datetime.now(UTC)
