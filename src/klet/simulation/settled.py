"""What a node looks like once nothing goes wrong any more: everything wanted is there, everything there is wanted.

An oracle of its own: it looks at the containers themselves and at the plan, never at the agent's decisions.
"""

from collections.abc import Callable, Iterator

from msgspec import Struct

from klet.api.pod import PodStatus
from klet.api.pod_resources import is_sidecar
from klet.images.pulled.files import PullDirectory
from klet.images.pulled.format import decode_intent, file_name
from klet.model.pods import PodUID
from klet.runtime.hashing import container_hash
from klet.simulation.chronicle import Chronicle, History, Instance
from klet.simulation.invariants import TERMINAL, has_started, is_not_live, may_be_terminating
from klet.simulation.pods import MISSING_IMAGE
from klet.simulation.room import is_turned_away
from klet.testing.fake_runtime.images import normalize
from klet.testing.fake_runtime.machine import FakeRuntime
from klet.testing.pull_files import MemoryPullFiles


class Holdings(Struct, frozen=True, kw_only=True):
    """What the machine holds for pods, besides the runtime."""

    directories: frozenset[PodUID]
    logs: frozenset[PodUID]
    cgroups: frozenset[PodUID]
    mounts: frozenset[PodUID]
    untraced: frozenset[str]
    """Images that were pulled, and of which no record and no intent is kept."""


def unsettled(
    chronicle: Chronicle, runtime: FakeRuntime, holdings: Holdings, status_of: Callable[[PodUID], PodStatus | None]
) -> Iterator[str]:
    """Yield everything that is not yet as it should be."""
    chronicle.look()
    if chronicle.in_flight:
        yield f"{chronicle.in_flight} calls are under way"
        return
    if runtime.left_calls:
        yield f"{len(runtime.left_calls)} calls of killed agents are under way"
        return
    yield from _unowned(chronicle, runtime, holdings)
    for uid, history in chronicle.histories.items():
        if history.is_wanted:
            for complaint in _unsettled_pod(chronicle, uid, history, holdings, status_of(uid)):
                yield f"{uid}: {complaint}"


def _unowned(chronicle: Chronicle, runtime: FakeRuntime, holdings: Holdings) -> Iterator[str]:
    """Yield each sandbox, container, address, cgroup and directory without a pod that is wanted."""
    wanted = {uid for uid, history in chronicle.histories.items() if history.is_wanted}
    for sandbox in runtime.sandboxes():
        uid = sandbox.config.metadata.uid
        if uid not in wanted:
            yield f"sandbox {sandbox.id[:8]} of {uid} has no owner"
        elif sandbox.has_network and not sandbox.is_ready:
            yield f"dead sandbox {sandbox.id[:8]} of {uid} keeps its network"
    for kind, owners in (
        ("directory", holdings.directories),
        ("log directory", holdings.logs),
        ("cgroup", holdings.cgroups),
        ("mount", holdings.mounts),
    ):
        for uid in sorted(owners - wanted):
            yield f"{kind} of {uid} has no owner"
    for image in sorted(holdings.untraced):
        yield f"image {image} was pulled, and nothing says so"


def find_untraced(runtime: FakeRuntime, files: MemoryPullFiles) -> frozenset[str]:
    """Return the images that were pulled, and that the agent would let anybody use."""
    intents = {
        normalize(decode_intent(data).image)
        for (directory, _), data in files.content.items()
        if directory is PullDirectory.PULLING
    }
    return frozenset(
        stored.image.name
        for stored in runtime.stored_images()
        # A pull that ends without an answer, and brings what was there before, changes nothing about who may use it.
        if not stored.was_loaded
        and (PullDirectory.PULLED, file_name(stored.image.image_id)) not in files.content
        and intents.isdisjoint(stored.tags)
    )


def _unsettled_pod(
    chronicle: Chronicle, uid: PodUID, history: History, holdings: Holdings, status: PodStatus | None
) -> Iterator[str]:
    if status is None:
        yield "no status is reported"
        return
    if may_be_terminating(chronicle, history):
        yield "the pod that had this UID before may still be terminating"
        return
    if is_turned_away(status):
        yield from _wrong_holdings(chronicle, uid, status.phase, holdings)
        return
    is_over = _is_taken_for_over(chronicle, history, status)
    expected = status.phase if is_over else _expected_phase(chronicle, uid, history)
    if expected is None or any(each.is_alive and each.container.life.lasts is not None for each in history.instances):
        yield "a container has yet to run, or to end"
        return
    if status.phase != expected:
        yield f"{status.phase} is reported, and it is {expected}"
    yield from _wrong_holdings(chronicle, uid, expected, holdings)
    if any(each.is_alive and is_not_live(chronicle, history, each) for each in history.instances):
        yield "a container is not live, and still runs"
    if any(each.is_alive and not has_started(chronicle, history, each) for each in history.instances):
        yield "a container has yet to pass its startup probe"
    if expected == "Running" and any(
        history.newest(each.name) is None for each in history.pod.spec.ephemeral_containers
    ):
        yield "an ephemeral container has not been started"
    yield from _wrong_statuses(history, status)
    yield from _left_running(history)
    is_ready = any(condition.type == "Ready" and condition.status == "True" for condition in status.conditions)
    if is_ready != (_all_run(history) and not chronicle.commands.unready(uid)):
        yield f"Ready is {is_ready}"


def _wrong_holdings(chronicle: Chronicle, uid: PodUID, phase: str, holdings: Holdings) -> Iterator[str]:
    ready = sum(sandbox.is_ready for sandbox in chronicle.sandboxes_of(uid))
    if phase in {"Succeeded", "Failed"}:
        if ready:
            yield "it is over, and a sandbox is still ready"
        if uid in holdings.cgroups:
            yield "it is over, and still has a cgroup"
        if uid in holdings.mounts:
            yield "it is over, and still has a mount"
    elif uid not in holdings.cgroups:
        yield "it has no cgroup"
    if phase == "Running" and ready != 1:
        yield f"{ready} sandboxes are ready"


def _wrong_statuses(history: History, status: PodStatus) -> Iterator[str]:
    for each in status.container_statuses:
        instance = history.newest(each.name)
        if instance is None:
            continue
        if (each.state.running is not None) != instance.is_alive:
            yield f"{each.name} is {'running' if instance.is_alive else 'dead'}, and that is not what is reported"
        if each.restart_count != instance.restart_count:
            yield f"{each.name} is reported with restart count {each.restart_count}, not {instance.restart_count}"


def _left_running(history: History) -> Iterator[str]:
    """Yield each container that goes on although another one asked for a restart of all."""
    asked = history.restart_sources()
    members = {each.name for each in (*history.pod.spec.init_containers, *history.pod.spec.containers)}
    for each in history.instances if asked else ():
        if each.is_alive and each.name in members and each.container.created_at < asked[-1].container.finished_at:
            yield f"{each.name} runs on, and did not restart with all others"


def _all_run(history: History) -> bool:
    return _sidecars_run(history) and all(_runs(history, container.name) for container in history.pod.spec.containers)


def _sidecars_run(history: History) -> bool:
    return all(_runs(history, each.name) for each in history.pod.spec.init_containers if is_sidecar(each))


def _runs(history: History, name: str) -> bool:
    newest = history.newest(name)
    return newest is not None and newest.is_alive


def _expected_phase(chronicle: Chronicle, uid: PodUID, history: History) -> str | None:
    """Return the phase that follows from the containers, or None while something should still happen."""
    spec = history.pod.spec
    regular = [history.newest(container.name) for container in spec.containers if container.image != MISSING_IMAGE]
    init = [history.newest(container.name) for container in spec.init_containers if not is_sidecar(container)]
    if spec.restart_policy == "Never" and any(_failed(each) for each in init):
        return "Failed"
    found = [each for each in regular if each is not None]
    begun = [each for each in found if _has_begun(each) or _is_remade(history, each)]
    if len(begun) < len(spec.containers) and _must_not_restart(chronicle, uid, history):
        return "Pending"
    if None in regular:
        return None
    is_over = not any(each.is_alive or _may_begin(spec.restart_policy, history, each) for each in found)
    if is_over and any(_is_remade(history, each) for each in found):
        return "Failed"
    hashes = {f"{container_hash(container):x}" for container in spec.containers}
    if any(each.is_alive and each.spec_hash not in hashes for each in found):
        return None
    if any(not each.is_alive and _restarts(spec.restart_policy, each) for each in found):
        return None
    is_short = len(found) < len(spec.containers)
    if (is_short or any(each.is_alive for each in found)) and not _sidecars_run(history):
        return None
    if is_short and not all(_is_done(each) for each in init):
        return None
    if is_short:
        return "Pending"  # for an image that is nowhere
    if any(each.is_alive for each in found):
        return "Running"
    if history.comes_back and None in init and _has_no_sandbox(chronicle, uid):
        return "Pending"  # the pod that had this UID before was complete, and its init containers were removed
    return "Failed" if any(_failed(each) for each in found) else "Succeeded"


def _must_not_restart(chronicle: Chronicle, uid: PodUID, history: History) -> bool:
    """Return whether a pod lost its sandbox half-way and is never restarted: it waits without end, as in upstream."""
    return history.pod.spec.restart_policy == "Never" and bool(history.instances) and _has_no_sandbox(chronicle, uid)


def _is_taken_for_over(chronicle: Chronicle, history: History, status: PodStatus) -> bool:
    """Return whether the agent takes the pod for the ended one that had its UID before: the agent that knew was killed.

    Nothing on the node distinguishes the two pods, as upstream has it; what is left of the first may be removed later.
    """
    is_untouched = all(each.made_for is not history for each in history.instances)
    return history.comes_back and chronicle.agent_run > history.agent_run and is_untouched and status.phase in TERMINAL


def _has_no_sandbox(chronicle: Chronicle, uid: PodUID) -> bool:
    return not any(sandbox.is_ready for sandbox in chronicle.sandboxes_of(uid))


def _is_remade(history: History, instance: Instance) -> bool:
    """Return whether a container was recreated and not started: it counts as ended and failed, as upstream has it."""
    if _has_begun(instance):
        return False
    return any(each.name == instance.name and each.container.finished_at for each in history.instances)


def _may_begin(policy: str, history: History, instance: Instance) -> bool:
    """Return whether it is started, or started again. If it was recreated and not started, its last end decides."""
    if policy == "Never":
        return False
    ended = [each for each in history.instances if each.name == instance.name and each.container.finished_at]
    return not ended or _restarts(policy, ended[-1])


def _has_begun(instance: Instance) -> bool:
    return bool(instance.container.started_at or instance.container.finished_at)


def _is_done(instance: Instance | None) -> bool:
    return instance is not None and bool(instance.container.finished_at) and instance.container.exit_code == 0


def _failed(instance: Instance | None) -> bool:
    return instance is not None and bool(instance.container.finished_at) and instance.container.exit_code != 0


def _restarts(policy: str, instance: Instance) -> bool:
    if not instance.container.finished_at:
        return True  # created, and never started
    return policy == "Always" or (policy == "OnFailure" and instance.container.exit_code != 0)
