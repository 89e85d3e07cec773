"""Many stories of a simulated node, one after the other or on several processors."""

import argparse
import sys
import time
from contextlib import closing

from klet.simulation.many import processors, run_seeds
from klet.simulation.story import StoryOutcome


def main() -> int:
    options = _options()
    started = time.perf_counter()
    bad = containers = count = 0
    seeds = range(options.start, options.start + options.seeds)
    with closing(run_seeds(seeds, jobs=options.jobs, verbose=options.verbose)) as outcomes:
        for outcome in outcomes:
            containers += outcome.containers
            count += 1
            bad += bool(outcome.violations)
            _print(outcome, verbose=options.verbose)
            if bad >= options.most:
                break
    took = time.perf_counter() - started
    print(f"{count} seeds, {bad} violations, {containers:,} containers, {took:.0f} s")
    return 1 if bad else 0


def _print(outcome: StoryOutcome, *, verbose: bool) -> None:
    if not (outcome.violations or verbose):
        return
    for line in outcome.story:
        print(line)
    print(f"seed {outcome.seed}: {len(outcome.violations)} violations, {outcome.containers} containers, {outcome.took}")
    for violation in outcome.violations:
        print(f"  {violation}")
    if outcome.violations:
        print(f"  again: scripts/simulate --seeds 1 --start {outcome.seed}", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many")
    parser.add_argument("--start", type=int, default=0, help="the first one")
    parser.add_argument("--jobs", type=int, default=processors(), help="processes; as many as there are processors")
    parser.add_argument("--most", type=int, default=1, help="stop after so many seeds with a violation")
    parser.add_argument("--verbose", action="store_true", help="print every story")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
