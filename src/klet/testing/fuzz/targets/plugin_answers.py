"""What programs beside the agent answer: the runtime over gRPC, a credential plugin on its output.

An input is a conversation: its first line names it, and each part behind `SEPARATOR` is what one method answers, over a
real connection. A conversation brings the methods with their messages and the code of klet that asks; that is all that
another kind of plugin (devices, CSI, DRA) has to bring along.
"""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final, Protocol, TypeAlias

import grpc
from google.protobuf.message import DecodeError, EncodeError, Message
from grpc import aio
from msgspec import Struct

from klet.errors import KletError
from klet.testing.fuzz.mutators import amplify_bytes, change_bytes, choose_of
from klet.testing.fuzz.protobuf import change_message
from klet.testing.fuzz.target import Flaw, FuzzTarget, Limits, Recipe, Run

SEPARATOR: Final = b"\x00\xff\x00="
"""Before a method's name, a line feed and its answer; `Name:14` answers with that status instead."""
_STATUSES: Final = tuple(grpc.StatusCode)
_LONGEST_DETAILS: Final = 4096
_LONGEST_TEXT: Final = 16 << 10

Question: TypeAlias = Callable[[], Awaitable[object]]


class Asker(Protocol):
    """The part of klet that asks a plugin."""

    async def questions(self, parts: Mapping[str, list[bytes]]) -> Sequence[Question]:
        """Return what klet asks, one after the other; each may raise an error of klet's family."""
        ...

    async def close(self) -> None: ...


class Talk(Struct, frozen=True, kw_only=True):
    """A kind of plugin: its methods, example answers, and the code of klet that calls it."""

    name: str
    methods: Mapping[str, type[Message]]
    """The messages of the answers; empty for a plugin that answers in text."""
    examples: Sequence[Mapping[str, bytes]]
    asker: Callable[[str, Path], Asker]
    """Made with the endpoint of the server and a directory for files."""


def plugin_answers(talks: Sequence[Talk]) -> FuzzTarget:
    """Return the target for these kinds of plugins."""
    by_name = {talk.name: talk for talk in talks}

    @contextmanager
    def opened() -> Iterator[Run]:
        with tempfile.TemporaryDirectory(prefix="klet-fuzz-") as directory, asyncio.Runner() as runner:
            stage = _Stage(Path(directory), by_name)
            runner.run(stage.open())
            try:
                yield lambda data: runner.run(stage.play(data))
            finally:
                runner.run(stage.close())

    return FuzzTarget(
        name="plugin-answers",
        summary="answers of the runtime over gRPC and of credential plugins",
        seeds=lambda: [compose(talk.name, example.items()) for talk in talks for example in talk.examples],
        mutate=choose_of((_change_answer(by_name), _change_answer(by_name), _change_answer(by_name), _change_any_part)),
        amplify=_amplify(by_name),
        opened=opened,
        limits=Limits(memory=32 << 20, memory_per_byte=1024, largest=32 << 10),
    )


def compose(name: str, parts: Any) -> bytes:
    """Return an input of named answers."""
    return name.encode() + b"".join(SEPARATOR + method.encode() + b"\n" + answer for method, answer in parts)


def take_apart(data: bytes) -> tuple[str, list[tuple[str, bytes]]]:
    """Return the name of a `Talk`, and its answers by method."""
    name, *sections = data.split(SEPARATOR)
    pairs = (section.partition(b"\n") for section in sections)
    return name.decode("latin-1"), [(method.decode("latin-1"), answer) for method, _, answer in pairs]


class _Stage:
    """The server that answers, and the callers."""

    def __init__(self, directory: Path, talks: Mapping[str, Talk]) -> None:
        self._directory = directory
        self._talks = talks
        self._answers: dict[str, list[bytes]] = {}
        self._askers: dict[str, Asker] = {}
        self._server: Any = None

    async def open(self) -> None:
        socket = self._directory / "plugin.sock"
        self._server = aio.server()
        self._server.add_generic_rpc_handlers((_AnyMethod(self._answers),))
        self._server.add_insecure_port(f"unix:{socket}")
        await self._server.start()
        self._askers = {name: talk.asker(f"unix://{socket}", self._directory) for name, talk in self._talks.items()}

    async def close(self) -> None:
        for asker in self._askers.values():
            await asker.close()
        await self._server.stop(grace=None)

    async def play(self, data: bytes) -> object:
        name, parts = take_apart(data)
        asker = self._askers.get(name)
        if asker is None:
            return "no such plugin"
        self._answers.clear()
        for method, answer in parts:
            self._answers.setdefault(method, []).append(answer)
        outcomes = [await _outcome(ask) for ask in await asker.questions(self._answers)]
        # All of them together would make nearly every conversation a new one.
        return name, next(((number, error) for number, error in enumerate(outcomes) if error), "")


async def _outcome(ask: Question) -> str:
    try:
        await ask()
    except KletError as error:
        if len(str(error)) > _LONGEST_TEXT:
            raise Flaw(f"quotes too much of an answer: {type(error).__name__}") from error
        return type(error).__name__
    return ""


class _AnyMethod(grpc.GenericRpcHandler):
    """Answers every method with the bytes that are there for it, whatever they are."""

    def __init__(self, answers: Mapping[str, list[bytes]]) -> None:
        self._answers = answers

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        method = details.method.rpartition("/")[2]
        if method in _STREAMS:
            return grpc.unary_stream_rpc_method_handler(self._stream(method))
        return grpc.unary_unary_rpc_method_handler(self._answer(method))

    def _answer(self, method: str) -> Callable[[bytes, Any], Awaitable[bytes]]:
        async def answer(_request: bytes, context: Any) -> bytes:
            for key, answers in self._answers.items():
                if key.startswith(f"{method}:"):
                    code = (
                        _STATUSES[int(key.rpartition(":")[2]) % len(_STATUSES)] if key[-1:].isdigit() else _STATUSES[2]
                    )
                    if code is not grpc.StatusCode.OK:
                        await context.abort(code, answers[0].decode("utf-8", "replace")[:_LONGEST_DETAILS])
            there = self._answers.get(method, [])
            if not there:
                await context.abort(grpc.StatusCode.UNIMPLEMENTED, "no answer")
            return there.pop(0) if len(there) > 1 else there[0]

        return answer

    def _stream(self, method: str) -> Any:
        async def stream(_request: bytes, _context: Any) -> Any:
            for answer in self._answers.get(method, []):
                yield answer

        return stream


_STREAMS: Final = frozenset({"GetContainerEvents", "Subscribe"})


def _change_answer(talks: Mapping[str, Talk]) -> Callable[[Random, bytes, Sequence[bytes]], bytes]:
    """Change one message by its descriptor."""

    def step(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
        name, parts = take_apart(data)
        talk = talks.get(name)
        if talk is None or not parts:
            return change_bytes(random, data, others)
        at = random.randrange(len(parts))
        method, answer = parts[at]
        kind = talk.methods.get(method)
        try:
            if kind is None:
                raise DecodeError
            message = kind.FromString(answer)
            change_message(random, message)
            parts[at] = (method, message.SerializeToString())
        except (DecodeError, EncodeError, ValueError):
            parts[at] = (method, change_bytes(random, answer, []))
        return compose(name, parts)

    return step


def _change_any_part(random: Random, data: bytes, others: Sequence[bytes]) -> bytes:
    """Drop, double or change an answer by its bytes, let it fail, or take one of another conversation."""
    name, parts = take_apart(data)
    _, foreign = take_apart(random.choice(others)) if others else ("", parts)
    if not parts:
        return compose(name, foreign)
    at = random.randrange(len(parts))
    method, answer = parts[at]
    match random.randrange(5):
        case 0:
            del parts[at]
        case 1:
            parts.append((method, change_bytes(random, answer, [])))
        case 2:
            parts[at] = (f"{method.partition(':')[0]}:{random.randrange(17)}", answer)
        case 3 if foreign:
            parts.append(random.choice(foreign))
        case _:
            parts[at] = (method, change_bytes(random, answer, [foreign[0][1] if foreign else b""]))
    return compose(name, parts)


def _amplify(talks: Mapping[str, Talk]) -> Callable[[Random, bytes], Recipe]:
    """Repeat a whole answer: behind itself a message is one with every list twice as long."""
    any_bytes = amplify_bytes()

    def amplify(random: Random, data: bytes) -> Recipe:
        name, parts = take_apart(data)
        if name not in talks or not parts:
            return any_bytes(random, data)
        at = random.randrange(len(parts))
        method, answer = parts[at]
        before = compose(name, parts[:at]) + SEPARATOR + method.encode("latin-1") + b"\n"
        after = compose("", parts[at + 1 :])
        if answer and random.random() < 0.7:
            return Recipe(before, answer, after=after)
        inner = any_bytes(random, answer)
        return Recipe(before + inner.before, inner.piece, inner.middle, inner.closing, inner.after + after)

    return amplify
