"""What every part of the real agent stands on."""

import random
from dataclasses import dataclass

from klet.aio.clock import Clock
from klet.aio.threads import Threads
from klet.cri.client import CriClient
from klet.model.causes import CauseRecorder


@dataclass(frozen=True, slots=True, kw_only=True)
class Basics:
    """Time, chance, threads for the disk, the runtime, and where causes are recorded."""

    clock: Clock
    randomness: random.Random
    threads: Threads
    runtime: CriClient
    recorder: CauseRecorder
    """In a cluster, what it takes in becomes Events too."""
