"""Pods that start, for parts that let them go first."""


class NoStarts:
    """Nothing starts."""

    is_busy = False

    async def until_idle(self) -> None:
        return
