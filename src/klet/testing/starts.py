"""Pods that start, for parts that let them go first."""


class NoStarts:
    """Nothing waits to start."""

    async def until_none_waits(self) -> None:
        return
