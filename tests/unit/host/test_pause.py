import struct

import pytest

from klet.host.pause import build_pause_program

ADDRESS = 0x400000


@pytest.mark.parametrize(("architecture", "machine"), [("amd64", 62), ("arm64", 183)])
def test_the_program_is_a_static_executable_of_its_machine(architecture, machine):
    program = build_pause_program(architecture)
    kind, number, _, entry = struct.unpack_from("<HHIQ", program, 16)
    assert (program[:7], kind, number) == (b"\x7fELF\x02\x01\x01", 2, machine)
    assert entry == ADDRESS + 64 + 2 * 56
    offset, address, _, size, in_memory = struct.unpack_from("<QQQQQ", program, 64 + 8)
    assert (offset, address, size, in_memory) == (0, ADDRESS, len(program), len(program))


@pytest.mark.parametrize(
    ("architecture", "leave"),
    [
        pytest.param("amd64", "31ff b8e7000000 0f05", id="amd64 leaves with exit_group(0)"),
        pytest.param("arm64", "000080d2 c80b80d2 010000d4", id="arm64 leaves with exit_group(0)"),
    ],
)
def test_both_signal_actions_follow_the_code(architecture, leave):
    program = build_pause_program(architecture)
    ignored, _, _, _, handler, flags, restorer, mask = struct.unpack_from("<8Q", program, len(program) - 64)
    assert ignored == 1
    assert (flags, restorer, mask) == (0x04000000, handler, 0)
    assert program[handler - ADDRESS : len(program) - 64] == bytes.fromhex(leave)


def test_arm64_instructions():
    program = build_pause_program("arm64")
    words = [f"{word:08x}" for (word,) in struct.iter_unpack("<I", program[64 + 2 * 56 : -64])]
    actions = ADDRESS + len(program) - 64
    ignore, leave = (f"{0xD2800001 | (action & 0xFFFF) << 5:08x}" for action in (actions, actions + 32))
    rest = ["d2800002", "d2800103", "d28010c8", "d4000001"]  # mov x2, #0; mov x3, #8; mov x8, #134; svc #0
    high = "f2a00801"  # movk x1, #0x40, lsl #16
    assert words == [
        *["d2800220", ignore, high, *rest],  # mov x0, #17
        *["d28001e0", leave, high, *rest],  # mov x0, #15
        *["d2800040", leave, high, *rest],  # mov x0, #2
        *["d2800000", "d2800001", "d2800002", "d2800003", "d2800104", "d2800928", "d4000001", "17fffff9"],
        *["d2800000", "d2800bc8", "d4000001"],
    ]
