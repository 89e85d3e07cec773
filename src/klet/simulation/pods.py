"""Random pods and the lives of their containers. Pure: the same generator state gives the same pods."""

import random
from collections.abc import Mapping, Sequence
from datetime import timedelta

from msgspec import Struct
from msgspec.structs import replace

from klet.api.container import (
    Container,
    ContainerRestartRule,
    ContainerRestartRuleOnExitCodes,
    EphemeralContainer,
    VolumeMount,
)
from klet.api.handlers import ExecAction, Lifecycle, LifecycleHandler, Probe
from klet.api.pod import Pod
from klet.api.volume import EmptyDirVolumeSource, Volume
from klet.model.pods import PodUID, uid_of
from klet.model.probes import ProbeKind
from klet.simulation.commands import POST_START, PRE_STOP, CommandResults, attempt_of
from klet.simulation.lives import (
    draw_command_results,
    draw_debugger_lives,
    draw_init_lives,
    draw_regular_lives,
    draw_sidecar_lives,
)
from klet.testing.builders import IMAGE, make_container, make_pod, with_resources
from klet.testing.fake_runtime import ContainerLife, FakeImage
from klet.testing.fake_runtime.images import Registry
from klet.testing.fake_runtime.lives import LifeChooser
from klet.wire import cri_v1_pb2 as pb

FILE = "file"
API = "api"
MISSING_IMAGE = "klet.local/missing:1"
SLOW_IMAGE = "klet.local/slow:1"
OTHER_IMAGE = "klet.local/busybox:2"
"""What a changed container runs; it is on the node already."""
LOADED = (FakeImage(name=IMAGE), FakeImage(name=OTHER_IMAGE))
DEBUGGERS = ("e0", "e1")
"""The names of ephemeral containers that may come to a pod."""
RESTARTS_ALL = 42
"""The exit code by which a container with a rule restarts all containers of its pod; no other container has it."""
SCRATCH = "scratch"
_REQUEST = "simulation/requested-cpu"
PERIODS = {ProbeKind.READINESS: (1, 5), ProbeKind.LIVENESS: (2, 10), ProbeKind.STARTUP: (1, 2)}


class PodPlan(Struct, frozen=True, kw_only=True):
    """A pod and what its containers do at each attempt; the last life of a container is repeated."""

    pod: Pod
    source: str
    lives: Mapping[str, Sequence[ContainerLife]]
    command_results: Mapping[str, CommandResults]

    @property
    def uid(self) -> PodUID:
        return uid_of(self.pod)


def plan_pod(rng: random.Random, *, number: int, name: str, source: str) -> PodPlan:
    """Draw one pod."""
    policy = rng.choices(("Always", "OnFailure", "Never"), (6, 2, 2))[0]
    regular = [_container(rng, f"c{index}") for index in range(rng.choices((1, 2, 3), (6, 3, 1))[0])]
    init = [_init_container(rng, index) for index in range(rng.choices((0, 1, 2), (6, 3, 1))[0])]
    lives = {container.name: draw_regular_lives(rng, policy) for container in regular}
    for container in init:
        lives[container.name] = draw_sidecar_lives(rng) if container.restart_policy else draw_init_lives(rng)
    for debugger in DEBUGGERS:
        lives[debugger] = draw_debugger_lives(rng)
    pod = make_pod(*regular, init=init, name=name, uid=f"uid-{number}", restart_policy=policy, source=source)
    grace = rng.choice((1, 2, 5, 10, 30))
    volumes = (Volume(name=SCRATCH, empty_dir=EmptyDirVolumeSource()),)
    pod = replace(pod, spec=replace(pod.spec, termination_grace_period_seconds=grace, volumes=volumes))
    command_results = {container.name: draw_command_results(rng) for container in (*init, *regular)}
    return PodPlan(pod=pod, source=source, lives=lives, command_results=command_results)


def with_rule(rng: random.Random, plan: PodPlan) -> PodPlan:
    """Return some pods so that one of their containers asks for a restart of all, once or twice, before its own lives.

    Only where everything is restarted anyway: so the rule changes when containers start, and not whether.
    """
    if plan.pod.spec.restart_policy != "Always" or rng.random() < 0.7:
        return plan
    chosen = rng.choice(plan.pod.spec.containers)
    codes = ContainerRestartRuleOnExitCodes(operator="In", values=(RESTARTS_ALL,))
    rule = ContainerRestartRule(action="RestartAllContainers", exit_codes=codes)
    ruled = replace(chosen, restart_policy="Always", restart_policy_rules=(rule,))
    asks = [
        ContainerLife(lasts=timedelta(milliseconds=rng.choice((0, rng.randint(1, 12_000)))), exit_code=RESTARTS_ALL)
        for _ in range(rng.choice((1, 1, 2)))
    ]
    containers = tuple(ruled if each is chosen else each for each in plan.pod.spec.containers)
    lives = {**plan.lives, chosen.name: [*asks, *plan.lives[chosen.name]]}
    return replace(plan, pod=replace(plan.pod, spec=replace(plan.pod.spec, containers=containers)), lives=lives)


def with_request(rng: random.Random, plan: PodPlan) -> PodPlan:
    """Return some pods of the API server with a CPU request, of which the node cannot meet many."""
    amount = rng.choice((0, 0, 400, 900, 1500))
    if plan.source != API or not amount:
        return plan
    first, *rest = plan.pod.spec.containers
    asking = with_resources(first, requests={"cpu": f"{amount}m"})
    spec = replace(plan.pod.spec, containers=(asking, *rest))
    annotations = {**plan.pod.metadata.annotations, _REQUEST: str(amount)}
    return replace(plan, pod=replace(plan.pod, spec=spec, metadata=replace(plan.pod.metadata, annotations=annotations)))


def requested_cpu(pod: Pod) -> int:
    """Return what a pod of a plan requests, in thousandths of a CPU."""
    return int(pod.metadata.annotations.get(_REQUEST, "0"))


def choose_life(plans: Sequence[PodPlan]) -> LifeChooser:
    """Return the script of all containers."""
    lives = {(plan.uid, name): each for plan in plans for name, each in plan.lives.items()}

    def choose(config: pb.ContainerConfig) -> ContainerLife:
        attempt = attempt_of(config)
        chosen = lives[attempt.uid, attempt.container]
        return chosen[min(attempt.number, len(chosen) - 1)]

    return choose


def command_results_of(plans: Sequence[PodPlan]) -> dict[tuple[PodUID, str], CommandResults]:
    return {(plan.uid, name): each for plan in plans for name, each in plan.command_results.items()}


def registry(*, pull_time: timedelta) -> Registry:
    """Return what can be pulled: everything but the missing image."""
    return lambda name: None if name == MISSING_IMAGE else FakeImage(name=name, pull_time=pull_time)


def with_other_image(pod: Pod, *, index: int) -> Pod:
    """Return the pod with one container changed."""
    containers = list(pod.spec.containers)
    index %= len(containers)
    image = IMAGE if containers[index].image == OTHER_IMAGE else OTHER_IMAGE
    containers[index] = replace(containers[index], image=image)
    return replace(pod, spec=replace(pod.spec, containers=tuple(containers)))


def with_debugger(pod: Pod) -> Pod:
    """Return the pod with one more ephemeral container; there are only so many."""
    taken = pod.spec.ephemeral_containers
    added = tuple(
        EphemeralContainer(name=name, image=IMAGE, image_pull_policy="IfNotPresent")
        for name in DEBUGGERS[len(taken) : len(taken) + 1]
    )
    return replace(pod, spec=replace(pod.spec, ephemeral_containers=(*taken, *added)))


def _container(rng: random.Random, name: str) -> Container:
    image = rng.choices((IMAGE, SLOW_IMAGE, MISSING_IMAGE), (80, 18, 2))[0]
    container = make_container(name, image=image)
    if rng.random() < 0.1:
        container = replace(container, image_pull_policy="Always")
    if rng.random() < 0.2:
        part = VolumeMount(name=SCRATCH, mount_path="/scratch", sub_path="part")
        container = replace(container, volume_mounts=(part,))
    return _watched(rng, container)


def _init_container(rng: random.Random, index: int) -> Container:
    if rng.random() < 0.4:
        return _watched(rng, make_container(f"i{index}", restart_policy="Always"))
    return make_container(f"i{index}")


def _watched(rng: random.Random, container: Container) -> Container:
    """Return the container with some probes and hooks."""
    if rng.random() < 0.25:
        container = replace(container, readiness_probe=_probe(rng, ProbeKind.READINESS))
    if rng.random() < 0.2:
        container = replace(container, liveness_probe=_probe(rng, ProbeKind.LIVENESS))
    if rng.random() < 0.15:
        container = replace(container, startup_probe=_probe(rng, ProbeKind.STARTUP))
    post_start = _hook(POST_START) if rng.random() < 0.12 else None
    pre_stop = _hook(PRE_STOP) if rng.random() < 0.2 else None
    if post_start is None and pre_stop is None:
        return container
    return replace(container, lifecycle=Lifecycle(post_start=post_start, pre_stop=pre_stop))


def _probe(rng: random.Random, kind: ProbeKind) -> Probe:
    return Probe(
        exec=ExecAction(command=(kind.value,)),
        period_seconds=rng.choice(PERIODS[kind]),
        timeout_seconds=1,
        success_threshold=rng.choice((1, 2)) if kind is ProbeKind.READINESS else 1,
        failure_threshold=3 if kind is ProbeKind.STARTUP else rng.choice((1, 2)),
    )


def _hook(command: str) -> LifecycleHandler:
    return LifecycleHandler(exec=ExecAction(command=(command,)))
