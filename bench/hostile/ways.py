"""The ways to attack: slow heads, endless heads, random tokens, hang-ups.

Each gets a connection and uses it until the server ends it or, where it hangs up, until it returns.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from bench.hostile.wire import Wire

Way: TypeAlias = Callable[[Wire, random.Random], Awaitable[None]]

BYTE_EVERY = 1.0
START = b"GET /pods HTTP/1.1\r\nHost: node\r\n"
LINES = b"".join(b"X-Field-%04d: some value that nobody needs\r\n" % number for number in range(300))
SPACES = (
    START + b"X-Padding: a" + b" " * 60_000 + b"b\r\n\r\n",
    START + b"X-Padding:" + b" \t" * 30_000 + b"\r\n\r\n",
    b"GET /pods" + b" " * 60_000 + b"HTTP/1.1\r\nHost: node\r\n\r\n",
)
TINY = START + b"a:b\r\n" * 5_000 + b"\r\n"
PATHS = ("/pods", "/metrics", "/stats/summary", "/containerLogs/default/pod/main", "/exec/default/pod/main?command=id")


async def stay_silent(wire: Wire, _randomness: random.Random) -> None:
    """Never begin the handshake."""
    await wire.until_closed()


async def send_slowly(wire: Wire, _randomness: random.Random) -> None:
    """A byte a second of a head that has no end."""
    await wire.shake_hands()
    head = START + LINES
    for at in range(len(head)):
        await wire.send(head[at : at + 1])
        try:
            async with asyncio.timeout(BYTE_EVERY):
                while True:
                    await wire.receive()
        except TimeoutError:
            continue


async def send_lines(wire: Wire, _randomness: random.Random) -> None:
    """Header lines without end, as fast as the server takes them."""
    await wire.shake_hands()
    await wire.send(START)
    while True:
        await wire.send(LINES)


async def send_spaces(wire: Wire, randomness: random.Random) -> None:
    """Heads of 60,000 spaces, which a careless expression reads in quadratic time."""
    await wire.shake_hands()
    while True:
        await wire.send(randomness.choice(SPACES))
        await wire.receive_answer()


async def send_tiny_fields(wire: Wire, _randomness: random.Random) -> None:
    """Heads of thousands of tiny headers."""
    await wire.shake_hands()
    while True:
        await wire.send(TINY)
        await wire.receive_answer()


async def guess_tokens(wire: Wire, randomness: random.Random) -> None:
    """One request after the other, each with a token of its own: every one may become a TokenReview."""
    await wire.shake_hands()
    while True:
        await wire.send(_request_with_token(randomness))
        await wire.receive_answer()


async def break_hello(wire: Wire, randomness: random.Random) -> None:
    hello = wire.make_client_hello()
    await wire.send_raw(hello[: randomness.randrange(1, len(hello))])
    wire.hang_up(is_rude=randomness.random() < 0.5)


async def leave_handshake(wire: Wire, randomness: random.Random) -> None:
    """The server has done its part of the work, which is the dear one."""
    await wire.send_raw(wire.make_client_hello())
    await asyncio.sleep(randomness.uniform(0, 0.05))
    wire.hang_up(is_rude=randomness.random() < 0.5)


async def leave_after_handshake(wire: Wire, randomness: random.Random) -> None:
    await wire.shake_hands()
    wire.hang_up(is_rude=randomness.random() < 0.5)


async def leave_in_head(wire: Wire, randomness: random.Random) -> None:
    await wire.shake_hands()
    head = START + LINES
    await wire.send(head[: randomness.randrange(1, len(head))])
    wire.hang_up(is_rude=randomness.random() < 0.5)


async def leave_in_request(wire: Wire, randomness: random.Random) -> None:
    """Ask with a token, and do not wait for the answer."""
    await wire.shake_hands()
    await wire.send(_request_with_token(randomness))
    await asyncio.sleep(randomness.uniform(0, 0.02))
    wire.hang_up(is_rude=randomness.random() < 0.5)


KINDS: dict[str, tuple[Way, ...]] = {
    "slow": (stay_silent, send_slowly, send_slowly, send_slowly),
    "endless": (send_lines, send_spaces, send_tiny_fields),
    "tokens": (guess_tokens,),
    "hang-ups": (break_hello, leave_handshake, leave_after_handshake, leave_in_head, leave_in_request),
}


def share_out(kinds: Sequence[str], connections: int) -> list[Way]:
    """The way of each connection: an equal number for each kind, and within a kind for each way."""
    chosen = [KINDS[kind] for kind in kinds]
    shares = [chosen[number % len(chosen)] for number in range(connections)]
    return [share[number // len(chosen) % len(share)] for number, share in enumerate(shares)]


def _request_with_token(randomness: random.Random) -> bytes:
    token, path = randomness.randbytes(24).hex(), randomness.choice(PATHS)
    return f"GET {path} HTTP/1.1\r\nHost: node\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
