"""The child of the atheris engine. libFuzzer owns this process, and ends it at a crash, a hang or too much memory.

    python -m klet.testing.fuzz.atheris_child MODULE TARGET FINDINGS [libFuzzer's options and directories]

The module with `all_targets` and all that it imports of klet get counters into their byte code; what the fuzzer itself
is made of is imported before, and gets none. What an input shows is written down, and the run goes on.
"""

import ctypes
import logging
import signal
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from importlib import import_module
from io import FileIO
from random import Random
from typing import Final

import atheris
import msgspec

from klet.testing.fuzz.corpus import FuzzFinding
from klet.testing.fuzz.judge import judge
from klet.testing.fuzz.target import FuzzTarget, Run

_DIE_WITH_PARENT: Final = 1
_GUIDES: Final = ("klet", "h11")
"""Packages whose edges guide the changes: klet, and what reads requests for it."""
_OTHERS: Final = 64
_BY_BYTES: Final = 0.25
"""How often libFuzzer's own mutations are taken: they know what the code has compared, and nothing of the format."""


def main(arguments: Sequence[str]) -> None:
    module, name, findings, *options = arguments
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    logging.disable(logging.CRITICAL)
    with atheris.instrument_imports(include=[*_GUIDES, module]):
        targets: Mapping[str, FuzzTarget] = import_module(module).all_targets()
    target = targets[name]
    with target.opened() as run, FileIO(findings, "a") as file:
        session = _Session(target, run, file)
        atheris.Setup([sys.argv[0], *options], session.run_input, custom_mutator=session.mutate)
        atheris.Fuzz()


class _Session:
    """What libFuzzer calls."""

    def __init__(self, target: FuzzTarget, run: Run, file: FileIO) -> None:
        self._target = target
        self._run = run
        self._file = file
        self._found: set[str] = set()
        self._others = deque(target.seeds(), maxlen=_OTHERS)

    def run_input(self, data: bytes) -> None:
        verdict = judge(self._run, data, self._target.limits)
        if verdict.flaw and verdict.flaw not in self._found:
            self._found.add(verdict.flaw)
            self._file.write(msgspec.json.encode(FuzzFinding(verdict.flaw, data, verdict.detail)) + b"\n")

    def mutate(self, data: bytes, most: int, seed: int) -> bytes:
        """Return a new input of one that led somewhere."""
        random = Random(seed)
        if random.random() < _BY_BYTES:
            mutated: bytes = atheris.Mutate(data, most)
            return mutated
        changed = self._target.mutate(random, data, self._others)
        self._others.append(data)
        return changed[:most]


if __name__ == "__main__":
    main(sys.argv[1:])
