"""Bugs to plant into a wired agent: each is what somebody could write by mistake, and the simulation must find it.

A bug is a function of the agent, applied before it runs. Nothing in klet knows of them.
"""

from collections.abc import Callable

from msgspec.structs import replace
from msgspec.structs import replace as replace_struct

from klet.app.wiring import Agent
from klet.cri.events import EventKind
from klet.images.pulled.records import PulledImages
from klet.model.probes import ProbeKind, ProbeResult
from klet.model.runtime import PodRuntimeStatus
from klet.node.first_contact import AfterFirstContact
from klet.runtime.gc import ContainerGc
from klet.sync.cgroup_step import CgroupStep
from klet.sync.housekeeping import Housekeeping
from klet.sync.pod_sync import PodSync
from klet.sync.rebooted_pods import RebootedPods
from klet.sync.worker_state import UpdateKind
from klet.sync.workers import PodWorkers

Bug = Callable[[Agent], None]


def lost_newest_wins(agent: Agent) -> None:
    """The first spec of a pod is kept, and its updates are dropped."""
    workers = _part(agent, PodWorkers)
    update = workers.update

    def first_only(news, **options):
        if news.kind is not UpdateKind.UPDATE or news.pod.metadata.deletion_timestamp is not None:
            update(news, **options)

    workers.update = first_only


def stale_status_accepted(agent: Agent) -> None:
    """A worker takes any reading, even one from before its own last step."""
    pleg, fresh = agent.pleg, agent.pleg.fresh_status

    async def any_status(uid, *, newer_than):
        reading = agent.cache.get(uid)
        return await fresh(uid, newer_than=newer_than) if reading is None or reading.error else reading.status

    pleg.fresh_status = any_status


def event_dropped(agent: Agent) -> None:
    """The end of a container is not looked into: the next relist has to see it."""
    note = agent.pleg._note

    def deaf(event):
        if event.kind is not EventKind.STOPPED:
            note(event)

    agent.pleg._note = deaf


def double_start_after_a_kill(agent: Agent) -> None:
    """A new agent begins with an empty view of the runtime, as if nothing ran."""
    pleg, fresh = agent.pleg, agent.pleg.fresh_status

    async def empty_at_first(uid, *, newer_than):
        return PodRuntimeStatus(uid=uid) if newer_than == float("-inf") else await fresh(uid, newer_than=newer_than)

    pleg.fresh_status = empty_at_first


def no_wait_for_the_old_static_pod(agent: Agent) -> None:
    """A replaced static pod starts while the old one still runs."""
    agent.ledger.may_start = lambda _uid: True


def restart_count_reset(agent: Agent) -> None:
    """Each start counts from zero."""

    async def zero(*_args):
        return 0

    _steps(agent)._executor._starter._restart_count = zero


def dead_of_a_live_pod_removed(agent: Agent) -> None:
    """The garbage collector takes every pod for gone."""
    _part(agent, ContainerGc)._fates.should_content_be_removed = lambda _uid: True


def cgroups_left(agent: Agent) -> None:
    """A pod's cgroup stays when the pod has gone."""

    async def keep(_uid):
        return None

    async def none(_known):
        return ()

    class Kept:
        destroy_uid, orphans = staticmethod(keep), staticmethod(none)

    _part(agent, Housekeeping)._leftovers._cgroups = Kept()
    step = next(each for each in _steps(agent)._preparation._steps if isinstance(each, CgroupStep))
    step.release = keep


def terminal_phase_flips(agent: Agent) -> None:
    """A pod that has ended runs again as soon as it is reported once more."""
    board, put = agent.statuses, agent.statuses.put

    def forgetful(uid, status, **options):
        known = board.get(uid)
        is_over = known is not None and known.phase in {"Succeeded", "Failed"}
        return put(uid, replace_struct(status, phase="Running") if is_over else status, **options)

    board.put = forgetful


def agent_restart_restarts_containers(agent: Agent) -> None:
    """What a new agent finds running looks changed to it."""
    pleg, fresh = agent.pleg, agent.pleg.fresh_status

    async def unrecognized(uid, *, newer_than):
        status = await fresh(uid, newer_than=newer_than)
        if newer_than != float("-inf"):
            return status
        return replace(status, containers=tuple(replace(record, spec_hash=1) for record in status.containers))

    pleg.fresh_status = unrecognized


def backoff_ignored(agent: Agent) -> None:
    """A container that crashes is restarted at once, each time."""
    _steps(agent)._executor._starter._hold_back = lambda *_args, **_options: None


def orphan_never_stopped(agent: Agent) -> None:
    """What only the runtime knows is left alone."""
    workers = _part(agent, PodWorkers)
    update = workers.update

    def known_only(news, **options):
        if not news.is_runtime_only:
            update(news, **options)

    workers.update = known_only


def removed_pod_forgotten(agent: Agent) -> None:
    """A pod that its source no longer has is not stopped."""
    workers = _part(agent, PodWorkers)
    update = workers.update

    def never_kill(news, **options):
        if news.kind is not UpdateKind.KILL:
            update(news, **options)

    workers.update = never_kill
    workers.orphan = lambda _uid: None


def ready_for_good(agent: Agent) -> None:
    """A pod that was ready once is reported as ready ever after."""
    board, put = agent.statuses, agent.statuses.put

    def optimistic(uid, status, **options):
        known = board.get(uid)
        old = {each.type: each for each in known.conditions if each.status == "True"} if known else {}
        kept = tuple(old.get(each.type, each) if each.type == "Ready" else each for each in status.conditions)
        return put(uid, replace_struct(status, conditions=kept), **options)

    board.put = optimistic


def liveness_ignored(agent: Agent) -> None:
    """Nobody hears of a liveness probe that failed."""
    results = _steps(agent)._statuses._probes
    put = results.put

    def optimistic(uid, key, result, **options):
        if key.kind is not ProbeKind.LIVENESS or result is not ProbeResult.FAILURE:
            put(uid, key, result, **options)

    results.put = optimistic


def mounts_left(agent: Agent) -> None:
    """Parts of volumes wait_if_killed mounted when their pod is over."""

    class Kept:
        async def clean(self, _uid):
            return None

    _part(agent, Housekeeping)._leftovers._files._sub_paths = Kept()


def only_the_dead_restart(agent: Agent) -> None:
    """When all containers are to restart, those that run go on."""
    executor = _steps(agent)._executor
    carry_out = executor.carry_out

    async def spare_the_living(pod, status, actions, **options):
        dead = tuple(reset for reset in actions.reset if not reset.kill)
        return await carry_out(pod, status, replace(actions, reset=dead), **options)

    executor.carry_out = spare_the_living


def reboot_not_named(agent: Agent) -> None:
    """What a reboot did to pods has whatever cause their last update had."""
    steps = _part(agent, PodWorkers)._steps
    if isinstance(steps, RebootedPods):
        _part(agent, PodWorkers)._steps = steps._inner


def pull_without_intent(agent: Agent) -> None:
    """A pull is only recorded when it is done: an agent that is killed before leaves an image that anybody may use."""

    async def nothing(_image):
        pass

    _part(agent, PulledImages)._store.add_intent = nothing


def neighbours_ignored(agent: Agent) -> None:
    """A new pod is compared with the node alone: what others have been given does not count."""
    agent.fit._chain.predicates._loads.sum_up = lambda _others: {}


def room_never_returns(agent: Agent) -> None:
    """Pods that have ended hold what they were given for good."""
    admission = _part(agent, PodWorkers)._admission._inner
    admission._has_room = lambda _uid: True


BUGS: tuple[Bug, ...] = (
    neighbours_ignored,
    room_never_returns,
    reboot_not_named,
    lost_newest_wins,
    stale_status_accepted,
    event_dropped,
    double_start_after_a_kill,
    no_wait_for_the_old_static_pod,
    restart_count_reset,
    dead_of_a_live_pod_removed,
    cgroups_left,
    terminal_phase_flips,
    agent_restart_restarts_containers,
    backoff_ignored,
    orphan_never_stopped,
    removed_pod_forgotten,
    ready_for_good,
    liveness_ignored,
    mounts_left,
    only_the_dead_restart,
    pull_without_intent,
)


def _part(agent, kind):
    return next(part for part in _parts(agent.parts) if isinstance(part, kind))


def _parts(parts):
    """Also those that run only when the runtime has answered."""
    for part in parts:
        yield part
        if isinstance(part, AfterFirstContact):
            yield from part._parts


def _steps(agent):
    """The innermost: others measure them, and say what a reboot did."""
    steps = _part(agent, PodWorkers)._steps
    while not isinstance(steps, PodSync):
        steps = steps._inner
    return steps
