r"""What busybox would do with a command: a shell for containers in tests, as a `ContainerLife` or an `ExecResult`.

Understood are sleep, echo, printf, true, false, exit, trap, `kill -9 $$`, writing to files, `while :; do …; done`, long
lines from `head -c N /dev/zero | tr "\0" x`, and a variable that doubles for ever, which ends in the OOM killer.
"""

import re
import shlex
from collections.abc import Sequence
from datetime import timedelta

from msgspec import Struct, field
from msgspec.structs import replace

from klet.cri.errors import Code
from klet.testing.fake_runtime.calls import RpcFailure
from klet.testing.fake_runtime.lives import ContainerLife, ExecResult, FileWrite, OnTerm, OutputLine, Stream
from klet.testing.fake_runtime.processes import KILLED
from klet.wire import cri_v1_pb2 as pb

# How long a loop of a script is followed.
_LOOP = timedelta(minutes=10)
_PROGRAMS = frozenset({"sh", "sleep", "echo", "printf", "true", "false", "head", "kill", "cat"})
_WHILE = re.compile(r"while :; do (?P<body>.*?); done", re.DOTALL)
_LONG = re.compile(r'head -c (?P<count>\d+) /dev/zero \| tr "\\0" (?P<letter>\w)')


class UnknownCommand(ValueError):
    """The little shell does not know this."""


def shell_life(config: pb.ContainerConfig) -> ContainerLife:
    """Return the life of a busybox container: a chooser of lives."""
    command = [*config.command, *config.args]
    if command[0] not in _PROGRAMS:
        return ContainerLife(
            start_failure=RpcFailure(
                Code.UNKNOWN,
                "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create"
                f' failed: unable to start container process: exec: "{command[0]}": executable file not found in $PATH:'
                " unknown",
            )
        )
    run = _interpret(command)
    life = ContainerLife(
        lasts=run.at if run.has_ended else None,
        exit_code=run.exit_code,
        oom_killed=run.is_oom,
        logs=tuple(run.lines),
        files=tuple(run.files),
    )
    if run.term is not None:
        return replace(life, on_term=run.term)
    # The first process of a pid namespace is immune to signals it has no handler for.
    is_first = config.linux.security_context.namespace_options.pid != pb.POD
    return replace(life, on_term=None if is_first or run.ignores_term else OnTerm())


def shell_exec(_config: pb.ContainerConfig, command: Sequence[str]) -> ExecResult:
    """Return what a command does inside a busybox container: a chooser of execs."""
    if command[0] not in _PROGRAMS:
        failure = RpcFailure(
            Code.UNKNOWN,
            "OCI runtime exec failed: exec failed: unable to start container process:"
            f' exec: "{command[0]}": executable file not found in $PATH: unknown',
        )
        return ExecResult(failure=failure)
    run = _interpret(command)
    output = {"stdout": "", "stderr": ""}
    for line in run.lines:
        output[line.stream] += line.text + ("\n" if line.newline else "")
    return ExecResult(
        stdout=output["stdout"].encode(), stderr=output["stderr"].encode(), exit_code=run.exit_code, takes=run.at
    )


class _Run(Struct):
    """How far a script has come."""

    at: timedelta = timedelta()
    exit_code: int = 0
    has_ended: bool = False
    is_oom: bool = False
    term: OnTerm | None = None
    ignores_term: bool = False
    lines: list[OutputLine] = field(default_factory=list)
    files: list[FileWrite] = field(default_factory=list)


def _interpret(command: Sequence[str]) -> _Run:
    run = _Run()
    script = command[2] if list(command[:2]) == ["sh", "-c"] else shlex.join(command)
    _run_script(run, script)
    run.has_ended = run.has_ended or run.at < _LOOP
    return run


def _run_script(run: _Run, script: str) -> None:
    loop = _WHILE.search(script)
    if loop is None:
        _run_list(run, script)
        return
    _run_list(run, script[: loop.start()].rstrip("; "))
    if "$x$x" in loop["body"]:
        run.is_oom, run.has_ended, run.exit_code = True, True, KILLED
    while not run.has_ended and run.at < _LOOP:
        _run_list(run, loop["body"])


def _run_list(run: _Run, script: str) -> None:
    for statement in _split(script):
        if run.has_ended:
            return
        _run_statement(run, statement)


def _run_statement(run: _Run, statement: str) -> None:
    if long := _LONG.fullmatch(statement):
        run.lines.append(OutputLine(at=run.at, text=long["letter"] * int(long["count"]), newline=False))
        return
    words = shlex.split(statement)
    if words[0] in ("echo", "printf"):
        _run_output(run, words)
        return
    match words:
        case ["sleep", seconds]:
            run.at += timedelta(seconds=float(seconds))
        case ["true" | ":"]:
            run.exit_code = 0
        case ["false"]:
            run.exit_code = 1
        case ["exit", code]:
            run.exit_code, run.has_ended = int(code), True
        case ["kill", "-9", "$$"]:
            run.exit_code, run.has_ended = KILLED, True
        case ["trap", "", "TERM"]:
            run.ignores_term = True
        case ["trap", handler, "TERM"]:
            run.term = OnTerm(exit_code=int(handler.removeprefix("exit ")))
        case [assignment] if re.fullmatch(r"\w+=\w*", assignment):
            pass
        case _:
            raise UnknownCommand(statement)


def _run_output(run: _Run, words: list[str]) -> None:
    match words:
        case ["echo", *texts, ">", path]:
            run.files.append(FileWrite(at=run.at, path=path, content=f"{' '.join(texts)}\n".encode()))
        case ["echo", *texts, ">&2"]:
            _say(run, " ".join(texts), stream="stderr")
        case ["echo", *texts]:
            _say(run, " ".join(texts))
        case [_, text]:
            _say(run, text, newline=False)
        case _:
            raise UnknownCommand(" ".join(words))


def _say(run: _Run, text: str, *, stream: Stream = "stdout", newline: bool = True) -> None:
    """Print a line; one that was left open continues."""
    last = run.lines[-1] if run.lines else None
    if last is not None and not last.newline and last.at == run.at and last.stream == stream:
        run.lines[-1] = replace(last, text=last.text + text, newline=newline)
    else:
        run.lines.append(OutputLine(at=run.at, text=text, stream=stream, newline=newline))


def _split(script: str) -> list[str]:
    """Split at semicolons outside of quotes."""
    return [part.strip() for part in re.findall(r"""(?:'[^']*'|"[^"]*"|[^;'"])+""", script) if part.strip()]
