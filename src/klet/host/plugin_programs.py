"""Programs of plugins, run for one answer: the agent's environment, no shell, a deadline, bounded output."""

from collections.abc import Mapping, Sequence
from datetime import timedelta

from klet.host.errors import ProcessFailed
from klet.host.processes import Completed, run_process


class PluginPrograms:
    """Runs programs by their paths."""

    def __init__(self, *, environment: Mapping[str, str]) -> None:
        self._environment = environment

    async def run(
        self, argv: Sequence[str], *, stdin: bytes, env: Mapping[str, str], timeout: timedelta, output_limit: int
    ) -> Completed:
        """Run one, with its own environment over that of the agent; raises ProcessFailed, ProcessTimeout."""
        environment = {**self._environment, **env}
        if any("\0" in text for text in (*argv, *environment, *environment.values())):
            raise ProcessFailed(f"cannot start {argv[0]}: an argument or a variable holds a NUL byte", returncode=None)
        return await run_process(argv, timeout=timeout, stdin=stdin, env=environment, output_limit=output_limit)
