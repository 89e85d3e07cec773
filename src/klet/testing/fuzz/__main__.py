"""Look for inputs that klet reads wrongly, dies of, or takes too long for.

  scripts/fuzz --list                            the targets
  scripts/fuzz request-heads                     one of them, for a minute
  scripts/fuzz all --minutes 10                  each of them, one after the other
  scripts/fuzz manifests --seed 7                the same inputs each time, from the target's own ones alone
  scripts/fuzz manifests --replay FILE           run what was found again
  scripts/fuzz all --engine own                  without atheris

The engine is atheris where it is installed: inputs are changed by the edges of klet's byte code that they reach, in a
child process, so that crashes, hangs and memory without end are findings too. The other one is klet's own.

Without --seed a run goes on with the inputs that earlier ones kept in $KLET_CACHE/fuzz (~/.cache/klet/fuzz). Findings
are kept there too, each made as small as possible, with the command that runs it again. docs/fuzzing.md says more.

Exit code: 0 if nothing was found, 1 if something was, 2 for wrong arguments, 130 after Ctrl-C.
"""

import argparse
import json
import logging
import os
import resource
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from pathlib import Path
from random import SystemRandom
from typing import Final, TextIO

from klet.aio.clock import Clock, SystemClock
from klet.errors import KletError
from klet.testing.fuzz.atheris_engine import AtherisFuzzer, Budget, is_there
from klet.testing.fuzz.corpus import Corpus, cache_directory, read_finding
from klet.testing.fuzz.engine import Fuzzer, FuzzProgress
from klet.testing.fuzz.isolated import Guard, ShownFlaw, examine_isolated, judge_isolated
from klet.testing.fuzz.target import FuzzTarget, Recipe
from klet.testing.fuzz.targets.all import all_targets

ALL: Final = "all"
ATHERIS, OWN = "atheris", "own"
_FOUND, _WRONG, _INTERRUPTED = 1, 2, 130
_MOST_MINUTES: Final = 24 * 60
_EVERY: Final = 5.0
"""Seconds between two lines of progress."""
_MEMORY: Final = 8 << 30
"""Bytes of addresses: an input that takes all memory is found, and does not take the machine with it."""


def main(arguments: Sequence[str], *, out: TextIO = sys.stdout, err: TextIO = sys.stderr) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    targets = all_targets()
    if options.list:
        _list(targets.values(), out, as_json=options.output == "json")
        return 0
    if options.target not in {ALL, *targets} or (options.replay and options.target == ALL):
        parser.error(f"TARGET must be one of {', '.join(targets)}" + ("" if options.replay else f", {ALL}"))
    if options.engine == ATHERIS and not is_there():
        parser.error("atheris is not installed: there is no wheel for every machine; --engine own needs none")
    chosen = list(targets.values()) if options.target == ALL else [targets[options.target]]
    session = Session(options=options, clock=SystemClock(), out=out, err=err)
    try:
        found = session.replay(chosen[0]) if options.replay else sum([session.fuzz(target) for target in chosen])
    except KletError as error:
        err.write(f"scripts/fuzz: {error}\n")
        return _WRONG
    except KeyboardInterrupt:
        return _INTERRUPTED
    return _FOUND if found else 0


class Session:
    """One call of the command."""

    def __init__(self, *, options: argparse.Namespace, clock: Clock, out: TextIO, err: TextIO) -> None:
        self._options = options
        self._clock = clock
        self._out = out
        self._err = err

    @property
    def _as_json(self) -> bool:
        return bool(self._options.output == "json")

    def fuzz(self, target: FuzzTarget) -> int:
        """Fuzz one target for its time; return how many findings there are."""
        is_fresh = self._options.seed is not None
        seed = self._options.seed if is_fresh else SystemRandom().randrange(1 << 32)
        corpus = _Fresh(self._corpus(target)) if is_fresh else self._corpus(target)
        fuzzer = self._fuzzer(target, seed, corpus)
        started = self._clock.monotonic()
        try:
            fuzzer.run(is_over=self._ending(target, started))
        finally:
            self._report(target, seed, fuzzer.progress, self._clock.monotonic() - started, corpus)
        return len(fuzzer.progress.findings)

    def replay(self, target: FuzzTarget) -> int:
        """Run what a file holds, in a process of its own; return how many flaws it shows."""
        what = read_finding(Path(self._options.replay))
        if isinstance(what, Recipe):
            shown = [ShownFlaw(each.flaw, each.detail) for each in examine_isolated(target, what, Guard())]
        else:
            shown = [each for each in (judge_isolated(target, what, Guard()),) if each.flaw]
        if self._as_json:
            flaws = [{"flaw": each.flaw, "detail": each.detail} for each in shown]
            answer = {"target": target.name, "file": self._options.replay, "findings": flaws}
            self._out.write(json.dumps(answer) + "\n")
            return len(shown)
        for each in shown:
            self._out.write(f"{target.name}: {each.flaw}\n{each.detail}\n")
        if not shown:
            self._out.write(f"{target.name}: nothing is wrong with it\n")
        return len(shown)

    def _fuzzer(self, target: FuzzTarget, seed: int, corpus: "Corpus | _Fresh") -> Fuzzer | AtherisFuzzer:
        if self._options.engine == OWN:
            return Fuzzer(target=target, seed=seed, keeper=corpus)
        executions = self._options.executions
        budget = Budget(executions=executions, seconds=0.0 if executions else self._seconds)
        return AtherisFuzzer(target=target, seed=seed, keeper=corpus, budget=budget, clock=self._clock)

    @property
    def _seconds(self) -> float:
        return timedelta(minutes=self._options.minutes).total_seconds()

    def _corpus(self, target: FuzzTarget) -> Corpus:
        return Corpus(directory=cache_directory(os.environ), target=target.name)

    def _ending(self, target: FuzzTarget, started: float) -> Callable[[FuzzProgress], bool]:
        shown_at = started

        def is_over(progress: FuzzProgress) -> bool:
            nonlocal shown_at
            now = self._clock.monotonic()
            if now - shown_at >= _EVERY and not self._as_json:
                shown_at = now
                self._err.write(f"{target.name}: {_describe(progress, now - started)}\n")
            if self._options.executions:
                return bool(progress.executions >= self._options.executions)
            return now - started >= self._seconds

        return is_over

    def _report(
        self, target: FuzzTarget, seed: int, progress: FuzzProgress, took: float, corpus: "Corpus | _Fresh"
    ) -> None:
        if self._as_json:
            summary = {
                "target": target.name,
                "engine": self._options.engine,
                "seed": seed,
                "executions": progress.executions,
                "executionsPerSecond": round(progress.executions / max(took, 0.001), 1),
                "measured": progress.measured,
                "corpus": progress.corpus,
                **({"lines": progress.lines} if self._options.engine == OWN else {"edges": progress.edges}),
                "seconds": round(took, 1),
                "findings": [{"flaw": each.flaw, "file": str(corpus.save(each))} for each in progress.findings],
            }
            self._out.write(json.dumps(summary) + "\n")
        else:
            self._out.write(f"{target.name}: {_describe(progress, took)} (seed {seed})\n")
            for each in progress.findings:
                self._out.write(f"  {each.flaw}\n    scripts/fuzz {target.name} --replay {corpus.save(each)}\n")
        self._out.flush()


class _Fresh:
    """A corpus that is added to, but not begun with."""

    def __init__(self, corpus: Corpus) -> None:
        self._corpus = corpus
        self.keep = corpus.keep
        self.save = corpus.save

    def load(self) -> list[bytes]:
        return []


def _describe(progress: FuzzProgress, took: float) -> str:
    reached = f"{progress.lines} lines" if progress.lines else f"{progress.edges} edges"
    return (
        f"{progress.executions:,} executions, {progress.executions / max(took, 0.001):,.0f}/s, "
        f"{progress.measured} measured, corpus {progress.corpus}, {reached}, "
        f"{len(progress.findings)} findings, {took:.0f} s"
    )


def _list(targets: Iterable[FuzzTarget], out: TextIO, *, as_json: bool) -> None:
    if as_json:
        out.write(json.dumps([{"name": target.name, "summary": target.summary} for target in targets]) + "\n")
        return
    out.writelines(f"{target.name:<18} {target.summary}\n" for target in targets)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="scripts/fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("target", nargs="?", default="", metavar="TARGET", help="what to fuzz (see --list), or `all`")
    parser.add_argument("--list", action="store_true", help="show the targets")
    parser.add_argument(
        "--minutes", type=_minutes, default=1.0, metavar="N", help="minutes for each target (default: 1)"
    )
    parser.add_argument(
        "--executions", type=_count, default=0, metavar="N", help="end after N inputs instead of after a time"
    )
    parser.add_argument("--seed", type=_number, metavar="S", help="make the same inputs each time; read nothing kept")
    parser.add_argument(
        "--engine",
        choices=(ATHERIS, OWN),
        default=ATHERIS if is_there() else OWN,
        help="what makes the inputs (default: %(default)s here)",
    )
    parser.add_argument("--replay", metavar="FILE", help="run one finding again")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="how to report")
    return parser


def _minutes(text: str) -> float:
    try:
        value = float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of minutes") from error
    if not 0 < value <= _MOST_MINUTES:
        raise argparse.ArgumentTypeError(f"{text} is not more than 0 and at most a day ({_MOST_MINUTES})")
    return value


def _count(text: str) -> int:
    value = _number(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"{text} is not more than 0")
    return value


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from error


def _limit_memory() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    allowed = _MEMORY if most == resource.RLIM_INFINITY else min(_MEMORY, most)
    resource.setrlimit(resource.RLIMIT_AS, (allowed, most))


def _main(arguments: Sequence[str]) -> int:
    _limit_memory()
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    logging.disable(logging.CRITICAL)  # what klet logs about its inputs would drown the report
    try:
        code = main(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has seen enough. Python would complain once more when it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return code


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
