"""The boards that the parts of the agent share: built first, each with one writer and many readers."""

from msgspec import Struct, field

from klet.aio.clock import Clock
from klet.allocation.book import AllocationBook
from klet.app.settings import AgentSettings
from klet.images.board import ImageBoard
from klet.images.holds import ImageHolds
from klet.images.pull_backoff import PullBackoff
from klet.images.pull_queue import PullQueue
from klet.images.running_pulls import RunningPulls
from klet.metrics import MetricRegistry
from klet.model.pods import PodUID
from klet.model.pull_times import PullTimes
from klet.model.saved_state import SavedState
from klet.model.stopping_pods import StoppingPods
from klet.pleg.cache import RuntimeCache
from klet.pods.store import PodStore
from klet.probes.results import ProbeResults
from klet.runtime.crash_backoff import CrashBackoff
from klet.runtime.start_turns import StartTurns
from klet.status.board import StatusBoard
from klet.sync.ledger import WorkerLedger


class Boards(Struct, frozen=True, kw_only=True):
    """The boards of the agent: what is wanted, what is, what is reported, and what waits."""

    statuses: StatusBoard
    backoff: CrashBackoff
    pulls: PullBackoff
    pull_queue: PullQueue
    stopping_pods: StoppingPods
    turns: StartTurns
    allocations: AllocationBook = field(default_factory=AllocationBook)
    pods: PodStore = field(default_factory=PodStore)
    ledger: WorkerLedger = field(default_factory=WorkerLedger)
    cache: RuntimeCache = field(default_factory=RuntimeCache)
    probes: ProbeResults = field(default_factory=ProbeResults)
    pull_times: PullTimes = field(default_factory=PullTimes)
    running_pulls: RunningPulls = field(default_factory=RunningPulls)
    images: ImageBoard = field(default_factory=ImageBoard)
    image_holds: ImageHolds = field(default_factory=ImageHolds)
    metrics: MetricRegistry


def remembered_pods(boards: Boards) -> frozenset[PodUID]:
    """Return every pod of which something is known."""
    return (
        boards.statuses.pods()
        | boards.backoff.pods()
        | boards.pulls.pods()
        | boards.allocations.pods()
        | boards.image_holds.pods()
    )


def build_boards(settings: AgentSettings, saved: SavedState, clock: Clock, metrics: MetricRegistry) -> Boards:
    """Return the boards with what a previous run of the agent left on them."""
    stopping_pods = StoppingPods()
    return Boards(
        statuses=StatusBoard(clock=clock, restored=saved.statuses),
        backoff=CrashBackoff(limits=settings.crash_backoff, restored=saved.delays),
        pulls=PullBackoff(restored=saved.pulls),
        pull_queue=PullQueue(at_once=settings.images.at_once),
        stopping_pods=stopping_pods,
        metrics=metrics,
        turns=StartTurns(at_once=settings.parallel_starts, stopping_pods=stopping_pods, clock=clock),
    )
