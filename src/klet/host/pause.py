"""The program of the pause image, written as machine code: it holds a pod's namespaces and does nothing else.

It ignores SIGCHLD, so that the kernel reaps the orphans of a shared process namespace at once, leaves with 0 on
SIGTERM and SIGINT, and waits without end. (Process 1 of a namespace receives only the signals it has a handler for.)
"""

import struct
from collections.abc import Callable

_BASE = 0x400000
_HEADERS = 64 + 2 * 56
_CODE = _BASE + _HEADERS
_SIGINT, _SIGTERM, _SIGCHLD = 2, 15, 17
_SIG_IGN = 1
_SA_RESTORER = 0x04000000  # x86_64 delivers no signal without it; our handler never returns, so any address will do


def build_pause_program(architecture: str) -> bytes:
    """Return a static ELF executable for `amd64` or `arm64`."""
    machine, assemble = _MACHINES[architecture]
    # The length of the code does not depend on the addresses in it.
    length = len(assemble(_CODE, _CODE)[0])
    actions = _CODE + length
    code, handler = assemble(actions, actions + _SIGACTION.size)
    ignore = _SIGACTION.pack(_SIG_IGN, 0, 0, 0)
    leave = _SIGACTION.pack(_CODE + handler, _SA_RESTORER, _CODE + handler, 0)
    return _executable(machine, code + ignore + leave)


_SIGACTION = struct.Struct("<QQQQ")
"""The kernel's struct sigaction: handler, flags, restorer, mask."""


def _executable(machine: int, body: bytes) -> bytes:
    ident = b"\x7fELF\x02\x01\x01".ljust(16, b"\0")
    size = _HEADERS + len(body)
    header = ident + struct.pack("<HHIQQQIHHHHHH", 2, machine, 1, _CODE, 64, 0, 0, 64, 56, 2, 0, 0, 0)
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, _BASE, _BASE, size, size, 0x10000)
    stack = struct.pack("<IIQQQQQQ", 0x6474E551, 6, 0, 0, 0, 0, 0, 16)  # PT_GNU_STACK: not executable
    return header + load + stack + body


def _assemble_amd64(ignore: int, leave: int) -> tuple[bytes, int]:
    """Return the code, and the offset of the signal handler in it."""
    syscall = b"\x0f\x05"

    def put(opcode: bytes, value: int) -> bytes:
        return opcode + struct.pack("<I", value)

    def sigaction(signal: int, action: int) -> bytes:  # rt_sigaction(edi, rsi, 0, 8)
        return (
            put(b"\xbf", signal) + put(b"\xbe", action) + b"\x31\xd2" + put(b"\x41\xba", 8) + put(b"\xb8", 13) + syscall
        )

    pause = put(b"\xb8", 34) + syscall
    wait = pause + b"\xeb" + struct.pack("<b", -(len(pause) + 2))  # jump back to the call
    start = sigaction(_SIGCHLD, ignore) + sigaction(_SIGTERM, leave) + sigaction(_SIGINT, leave) + wait
    return start + b"\x31\xff" + put(b"\xb8", 231) + syscall, len(start)  # exit_group(0)


def _assemble_arm64(ignore: int, leave: int) -> tuple[bytes, int]:
    """Return the code, and the offset of the signal handler in it."""
    supervisor_call = 0xD4000001

    def put(register: int, value: int) -> list[int]:
        low = 0xD2800000 | (value & 0xFFFF) << 5 | register
        return [low, 0xF2A00000 | (value >> 16) << 5 | register] if value >> 16 else [low]

    def call(number: int, *arguments: int) -> list[int]:
        loads = [word for register, value in enumerate(arguments) for word in put(register, value)]
        return [*loads, *put(8, number), supervisor_call]

    ppoll = call(73, 0, 0, 0, 0, 8)  # there is no pause() on this machine
    wait = [*ppoll, 0x14000000 | (-len(ppoll) & 0x3FFFFFF)]
    start = [
        *call(134, _SIGCHLD, ignore, 0, 8),
        *call(134, _SIGTERM, leave, 0, 8),
        *call(134, _SIGINT, leave, 0, 8),
        *wait,
    ]
    words = [*start, *call(94, 0)]
    return struct.pack(f"<{len(words)}I", *words), 4 * len(start)


_MACHINES: dict[str, tuple[int, Callable[[int, int], tuple[bytes, int]]]] = {
    "amd64": (62, _assemble_amd64),
    "arm64": (183, _assemble_arm64),
}
