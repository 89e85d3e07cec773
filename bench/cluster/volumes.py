"""100 pods with four volumes each beside 100 pods without: what volumes add to the start, for each agent.

Each pod has a ConfigMap and a Secret of its own, a token of its own and scratch space. A round of an agent is two nodes
one right after the other, one for each kind of pod, and rounds begin with either kind in turn: the speed of a machine
changes from one minute to the next.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.cluster.lives import start_manifests
from bench.cluster.node import NodeUnderTest
from bench.cluster.programs import BOTH, Program
from bench.cluster.turns import Ground
from bench.manifests import make_manifest
from bench.rows import Round, Row

PODS = 100
MOST_ADDED = 10.0
"""Percent of the time that pods without volumes take."""
OBJECTS = "/api/v1/namespaces/default"
VOLUMES = ("config", "secret", "token", "scratch")


@dataclass(frozen=True, slots=True)
class Pair:
    """Rounds without volumes, and with them; those of one index were measured together."""

    plain: list[Round] = field(default_factory=list)
    mounted: list[Round] = field(default_factory=list)

    @property
    def added_p50(self) -> float:
        return _added([each.p50 for each in self.plain], [each.p50 for each in self.mounted])

    @property
    def added_last(self) -> float:
        return _added([each.last for each in self.plain], [each.last for each in self.mounted])


async def measure_volumes(ground: Ground) -> list[Row]:
    names = [f"volumes-{number}" for number in range(PODS)]
    await _make_objects(ground, names)
    floor = Pair()
    klet, upstream = Pair(), Pair()
    for number in range(ground.rounds):
        for with_volumes in _order(number):
            count = len(VOLUMES) if with_volumes else 0
            _of(floor, with_volumes).append(await ground.floor.start(PODS, at_once=ground.at_once, volumes=count))
        for program, found in zip(BOTH, (klet, upstream), strict=True):
            for with_volumes in _order(number):
                _of(found, with_volumes).append(await _start(ground, program, names, with_volumes=with_volumes))
    return [
        *_rows("100 pods without volumes", klet.plain, floor.plain, upstream.plain),
        *_rows("100 pods, four volumes each", klet.mounted, floor.mounted, upstream.mounted),
        _added_row("added by the volumes, p50", klet.added_p50, floor.added_p50, upstream.added_p50),
        _added_row("added by the volumes, all", klet.added_last, floor.added_last, upstream.added_last),
    ]


async def _start(ground: Ground, program: Program, names: Sequence[str], *, with_volumes: bool) -> Round:
    async with ground.cluster.node(program, ground.client) as node:
        manifests = [make_manifest(name) for name in names]
        if with_volumes:
            manifests = [with_four_volumes(each, name) for each, name in zip(manifests, names, strict=True)]
        found = await start_manifests(node, names, manifests)
        if with_volumes:
            _check(node, names)
        return found


def with_four_volumes(manifest: dict[str, object], name: str) -> dict[str, object]:
    """Give a pod the volumes that most pods have."""
    token = {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}}
    volumes: list[dict[str, object]] = [
        {"name": "config", "configMap": {"name": name}},
        {"name": "secret", "secret": {"secretName": name}},
        {"name": "token", "projected": {"sources": [token]}},
        {"name": "scratch", "emptyDir": {}},
    ]
    spec = manifest["spec"]
    assert isinstance(spec, dict)
    (container,) = spec["containers"]
    mounts = [{"name": volume, "mountPath": f"/volumes/{volume}"} for volume in VOLUMES]
    return {**manifest, "spec": {**spec, "containers": [{**container, "volumeMounts": mounts}], "volumes": volumes}}


async def _make_objects(ground: Ground, names: Sequence[str]) -> None:
    for name in names:
        metadata = {"name": name}
        config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"key": "value"}}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"key": "value"}}
        await ground.cluster.api.send("POST", f"{OBJECTS}/configmaps", config)
        await ground.cluster.api.send("POST", f"{OBJECTS}/secrets", secret)


def _check(node: NodeUnderTest, names: Sequence[str]) -> None:
    """Raise if a pod runs without its files: then something else was measured."""
    for name in names:
        for plugin, file in (("configmap", "config/key"), ("secret", "secret/key"), ("projected", "token/token")):
            if not node.volume(name, f"kubernetes.io~{plugin}", file).is_file():
                raise RuntimeError(f"pod {name} runs without {file}")


def _order(number: int) -> tuple[bool, bool]:
    return (False, True) if number % 2 == 0 else (True, False)


def _of(pair: Pair, with_volumes: bool) -> list[Round]:
    return pair.mounted if with_volumes else pair.plain


def _added(plain: Sequence[float], mounted: Sequence[float]) -> float:
    """Return the median of what each round added, in percent."""
    return (
        statistics.median(with_volumes / without - 1 for without, with_volumes in zip(plain, mounted, strict=True))
        * 100
    )


def _rows(what: str, klet: Sequence[Round], floor: Sequence[Round], upstream: Sequence[Round]) -> list[Row]:
    """Rows without a budget of their own: that of 100 pods is measured by another part."""
    return [
        Row(
            what=f"{what}, p50",
            klet=statistics.median(each.p50 for each in klet),
            floor=statistics.median(each.p50 for each in floor),
            upstream=statistics.median(each.p50 for each in upstream),
            unit="s",
        ),
        Row(
            what=f"{what}, all",
            klet=statistics.median(each.last for each in klet),
            floor=statistics.median(each.last for each in floor),
            upstream=statistics.median(each.last for each in upstream),
            unit="s",
        ),
    ]


def _added_row(what: str, klet: float, floor: float, upstream: float) -> Row:
    return Row(what=what, klet=klet, floor=floor, upstream=upstream, unit="%", most=MOST_ADDED)
