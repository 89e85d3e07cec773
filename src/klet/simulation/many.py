"""Many stories, one after the other or on several processors; the order of the outcomes is that of the seeds."""

import gc
import logging
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from klet.simulation.story import Alteration, StoryOutcome, leave_as_is, run_seed

CHUNK = 8


def run_seeds(
    seeds: Sequence[int], *, jobs: int = 1, alter: Alteration = leave_as_is, verbose: bool = False
) -> Iterator[StoryOutcome]:
    """Run the stories of seeds. A caller that stops iterating ends the work after what has begun."""
    run = partial(_run_alone, alter=alter, verbose=verbose)
    if jobs == 1:
        prepare_process()
        try:
            yield from map(run, seeds)
        finally:
            gc.enable()
        return
    # Forked: nothing is imported again.
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(max_workers=jobs, mp_context=context, initializer=prepare_process) as pool:
        try:
            yield from pool.map(run, seeds, chunksize=CHUNK)
        finally:
            pool.shutdown(cancel_futures=True)


def processors() -> int:
    """Return how many stories can run at once."""
    return len(os.sched_getaffinity(0))


def prepare_process() -> None:
    """Log nothing, since all failures are intended; take what is there already out of garbage collection."""
    logging.disable(logging.CRITICAL)
    gc.collect()
    gc.freeze()
    gc.disable()


def _run_alone(seed: int, *, alter: Alteration, verbose: bool) -> StoryOutcome:
    """Run a story and free its memory, so that the next one finds it still in the processor's cache."""
    outcome = run_seed(seed, alter=alter, verbose=verbose)
    gc.collect()
    return outcome
