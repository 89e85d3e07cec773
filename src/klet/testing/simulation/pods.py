"""Random pods and the lives of their containers. Pure: the same generator state gives the same pods."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta

from msgspec.structs import replace

from klet.api.container import Container
from klet.api.handlers import ExecAction, Probe
from klet.api.pod import Pod
from klet.cri.errors import Code
from klet.model.pods import PodUID, uid_of
from klet.runtime import labels
from klet.testing.builders import IMAGE, make_container, make_pod
from klet.testing.fake_runtime import FakeImage, Life, OnTerm, RpcFailure
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


@dataclass(frozen=True, slots=True, kw_only=True)
class PodPlan:
    """A pod and what its containers do at each attempt; the last life of a container goes on for ever after."""

    pod: Pod
    source: str
    lives: Mapping[str, Sequence[Life]]

    @property
    def uid(self) -> PodUID:
        return uid_of(self.pod)


def plan_pod(rng: random.Random, *, number: int, name: str, source: str) -> PodPlan:
    """Draw one pod."""
    policy = rng.choices(("Always", "OnFailure", "Never"), (6, 2, 2))[0]
    regular = [_container(rng, f"c{index}") for index in range(rng.choices((1, 2, 3), (6, 3, 1))[0])]
    init = [_init_container(rng, index) for index in range(rng.choices((0, 1, 2), (6, 3, 1))[0])]
    lives = {container.name: _regular_lives(rng, policy) for container in regular}
    for container in init:
        lives[container.name] = _sidecar_lives(rng) if container.restart_policy else _init_lives(rng)
    pod = make_pod(*regular, init=init, name=name, uid=f"uid-{number}", restart_policy=policy, source=source)
    grace = rng.choice((1, 2, 5, 10, 30))
    pod = replace(pod, spec=replace(pod.spec, termination_grace_period_seconds=grace))
    return PodPlan(pod=pod, source=source, lives=lives)


def choose_life(plans: Sequence[PodPlan]) -> LifeChooser:
    """The script of all containers."""
    lives = {(plan.uid, name): each for plan in plans for name, each in plan.lives.items()}

    def choose(config: pb.ContainerConfig) -> Life:
        chosen = lives[PodUID(config.labels[labels.POD_UID]), config.metadata.name]
        return chosen[min(config.metadata.attempt, len(chosen) - 1)]

    return choose


def registry(*, pull_time: timedelta) -> Registry:
    """What can be pulled: everything but the missing image."""
    return lambda name: None if name == MISSING_IMAGE else FakeImage(name=name, pull_time=pull_time)


def with_other_image(pod: Pod, *, index: int) -> Pod:
    """The pod with one container changed."""
    containers = list(pod.spec.containers)
    index %= len(containers)
    image = IMAGE if containers[index].image == OTHER_IMAGE else OTHER_IMAGE
    containers[index] = replace(containers[index], image=image)
    return replace(pod, spec=replace(pod.spec, containers=tuple(containers)))


def _container(rng: random.Random, name: str) -> Container:
    image = rng.choices((IMAGE, SLOW_IMAGE, MISSING_IMAGE), (80, 18, 2))[0]
    container = make_container(name, image=image)
    if rng.random() < 0.1:
        container = replace(container, image_pull_policy="Always")
    return replace(container, readiness_probe=_readiness(rng)) if rng.random() < 0.25 else container


def _readiness(rng: random.Random) -> Probe:
    return Probe(
        exec=ExecAction(command=("check",)),
        period_seconds=rng.choice((1, 5)),
        timeout_seconds=1,
        success_threshold=rng.choice((1, 2)),
        failure_threshold=rng.choice((1, 2)),
    )


def _init_container(rng: random.Random, index: int) -> Container:
    is_sidecar = rng.random() < 0.4
    return make_container(f"i{index}", restart_policy="Always" if is_sidecar else None)


def _regular_lives(rng: random.Random, policy: str) -> list[Life]:
    crashes = [_crash(rng) for _ in range(rng.choices((0, 1, 2, 3), (6, 2, 1, 1))[0])]
    on_term = _on_term(rng)
    forever = Life(on_term=on_term)
    if policy == "Always" or rng.random() < 0.4:
        last = forever
    elif policy == "OnFailure":
        last = Life(lasts=_seconds(rng, 20), on_term=on_term)
    else:
        last = Life(lasts=_seconds(rng, 30), exit_code=rng.choice((0, 0, 1, 2)), on_term=on_term)
    return [last] if policy == "Never" else [*crashes, last]


def _sidecar_lives(rng: random.Random) -> list[Life]:
    crashes = [_crash(rng) for _ in range(rng.choices((0, 1), (3, 1))[0])]
    return [*crashes, Life(on_term=_on_term(rng))]


def _init_lives(rng: random.Random) -> list[Life]:
    crashes = [_crash(rng) for _ in range(rng.choices((0, 1), (4, 1))[0])]
    return [*crashes, Life(lasts=_seconds(rng, 3))]


def _crash(rng: random.Random) -> Life:
    kind = rng.random()
    if kind < 0.2:
        return Life(start_failure=RpcFailure(Code.UNKNOWN, "failed to create containerd task: no such file"))
    if kind < 0.3:
        return Life(lasts=_seconds(rng, 5), exit_code=137, oom_killed=True)
    return Life(lasts=_seconds(rng, 5), exit_code=rng.choice((1, 2, 139)), on_term=_on_term(rng))


def _on_term(rng: random.Random) -> OnTerm | None:
    kind = rng.random()
    if kind < 0.2:
        return None
    return OnTerm(exit_code=rng.choice((0, 143)), after=timedelta() if kind < 0.6 else _seconds(rng, 4))


def _seconds(rng: random.Random, most: float) -> timedelta:
    """Up to so many seconds, now and then none at all."""
    return timedelta() if rng.random() < 0.1 else timedelta(milliseconds=round(rng.uniform(0, most) * 1000))
