"""What containers do once they are started: a `ContainerLife` is data, a chooser picks one for each container.

A chooser is a pure function of the container's configuration, whose metadata hold the attempt (the restart count).
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from klet.cri.errors import Code
from klet.testing.fake_runtime.calls import RpcFailure
from klet.wire import cri_v1_pb2 as pb

Stream: TypeAlias = Literal["stdout", "stderr"]

NOTHING = timedelta()


class OutputLine(Struct, frozen=True):
    """Output at that time after the start; without `newline` the line stays open."""

    at: timedelta
    text: str
    stream: Stream = "stdout"
    newline: bool = True


class FileWrite(Struct, frozen=True):
    """Content written to a path inside the container; it reaches the host if the path is mounted."""

    at: timedelta
    path: str
    content: bytes


class OnTerm(Struct, frozen=True):
    """How a process takes its stop signal."""

    exit_code: int = 143
    after: timedelta = NOTHING


class ContainerLife(Struct, frozen=True):
    """From start to exit. `lasts` None is without end, `on_term` None ignores the stop signal until the kill."""

    lasts: timedelta | None = None
    exit_code: int = 0
    oom_killed: bool = False
    on_term: OnTerm | None = OnTerm()
    logs: tuple[OutputLine, ...] = ()
    files: tuple[FileWrite, ...] = ()
    create_failure: RpcFailure | None = None
    start_failure: RpcFailure | None = None
    cpu_cores: float = 0.01
    memory_bytes: int = 4 << 20

    def saying(self, *texts: str, every: timedelta = NOTHING) -> "ContainerLife":
        """Return the same life with lines of output, one after the other."""
        lines = tuple(OutputLine(at=every * number, text=text) for number, text in enumerate(texts))
        return replace(self, logs=self.logs + lines)

    def leaving(self, message: str, path: str = "/dev/termination-log") -> "ContainerLife":
        """Return the same life with a termination message written just before its end."""
        write = FileWrite(at=self.lasts or NOTHING, path=path, content=message.encode())
        return replace(self, files=(*self.files, write))


class ExecResult(Struct, frozen=True):
    """What a command run inside a container does."""

    stdout: bytes = b""
    stderr: bytes = b""
    exit_code: int = 0
    takes: timedelta = NOTHING
    failure: RpcFailure | None = None


LifeChooser: TypeAlias = Callable[[pb.ContainerConfig], ContainerLife]
ExecChooser: TypeAlias = Callable[[pb.ContainerConfig, Sequence[str]], ExecResult]

FOREVER = ContainerLife()
IGNORES_TERM = ContainerLife(on_term=None)


def runs_for(duration: timedelta, exit_code: int = 0) -> ContainerLife:
    return ContainerLife(lasts=duration, exit_code=exit_code)


def oom_killed_after(duration: timedelta) -> ContainerLife:
    return ContainerLife(lasts=duration, exit_code=137, oom_killed=True)


def fails_to_create(message: str, code: Code = Code.UNKNOWN) -> ContainerLife:
    return ContainerLife(create_failure=RpcFailure(code, message))


def fails_to_start(message: str, code: Code = Code.UNKNOWN) -> ContainerLife:
    return ContainerLife(start_failure=RpcFailure(code, message))


def lives_forever(_config: pb.ContainerConfig) -> ContainerLife:
    """Return the chooser for tests that do not care."""
    return FOREVER


def always(life: ContainerLife) -> LifeChooser:
    return lambda _config: life


def in_turn(*lives: ContainerLife) -> LifeChooser:
    """Return one life for each attempt; the last one goes on."""
    return lambda config: lives[min(config.metadata.attempt, len(lives) - 1)]


def crashes(
    times: int, *, then: ContainerLife = FOREVER, exit_code: int = 1, after: timedelta = NOTHING
) -> LifeChooser:
    """End with an error that many times, then live another life."""
    return in_turn(*[runs_for(after, exit_code)] * times, then)


def by_name(lives: Mapping[str, LifeChooser], default: LifeChooser = lives_forever) -> LifeChooser:
    """Choose by the container's name."""
    return lambda config: lives.get(config.metadata.name, default)(config)


def by_image(lives: Mapping[str, LifeChooser], default: LifeChooser = lives_forever) -> LifeChooser:
    """Choose by the image as the container's configuration names it."""
    return lambda config: lives.get(config.image.user_specified_image or config.image.image, default)(config)


def by_command(lives: Mapping[tuple[str, ...], LifeChooser], default: LifeChooser = lives_forever) -> LifeChooser:
    """Choose by command and arguments."""
    return lambda config: lives.get((*config.command, *config.args), default)(config)


def succeeds(_config: pb.ContainerConfig, _command: Sequence[str]) -> ExecResult:
    """Return the exec chooser for tests that do not care."""
    return ExecResult()
