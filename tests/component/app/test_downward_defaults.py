"""A container without limits, on a node without an API server: it gets what the node has for pods."""

import asyncio

import pytest

from klet.aio.clock import SystemClock
from klet.aio.threads import Threads
from klet.api.codec import convert
from klet.api.pod import Pod
from klet.api.quantity import Quantity
from klet.config.thresholds import Amount
from klet.node.settings import NodeSettings, Reservations
from klet.simulation import DrivenPodSource, SimulatedNode
from klet.simulation.node import RealDirectories
from klet.testing.builders import IMAGE
from klet.testing.fake_runtime import FakeImage, FakeRuntime

GIB, MIB = 1 << 30, 1 << 20
SETTINGS = NodeSettings(
    name="node",
    reservations=Reservations(
        fixed={
            "cpu": Quantity.parse("500m"),
            "memory": Quantity.parse("1Gi"),
            "ephemeral-storage": Quantity.parse("1Gi"),
        },
        kept_free={"memory": Amount(Quantity.parse("100Mi"))},
    ),
)
NAMES = ("cpu", "memory", "ephemeral-storage")
MEMORY = 4 * GIB - GIB - 100 * MIB
"""Of a machine with 4 GiB."""


def selector(name, divisor="1", **more):
    return {"resource": f"limits.{name}", "divisor": divisor} | more


def pod_of(container=None, **spec):
    files = [{"path": name, "resourceFieldRef": selector(name, containerName="c")} for name in NAMES]
    shown = [
        {"name": name.partition("-")[0].upper(), "valueFrom": {"resourceFieldRef": selector(name)}} for name in NAMES
    ]
    milli = {"name": "MILLI", "valueFrom": {"resourceFieldRef": selector("cpu", "1m")}}
    volumes = [
        {"name": "down", "downwardAPI": {"defaultMode": 0o644, "items": files}},
        {"name": "memory", "emptyDir": {"medium": "Memory"}},
    ]
    mounts = [{"name": each["name"], "mountPath": f"/{each['name']}"} for each in volumes]
    main = {"name": "c", "image": IMAGE, "imagePullPolicy": "IfNotPresent", "volumeMounts": mounts}
    main |= {"env": [*shown, milli]} | (container or {})
    fields = {"restartPolicy": "Always", "dnsPolicy": "Default", "enableServiceLinks": True}
    meta = {"name": "p", "namespace": "default", "uid": "u", "annotations": {"kubernetes.io/config.source": "file"}}
    return convert(Pod, {"metadata": meta, "spec": {"containers": [main], "volumes": volumes} | fields | spec})


@pytest.mark.parametrize(
    ("pod", "environment", "files", "size"),
    [
        pytest.param(
            pod_of(),
            {"CPU": "2", "MILLI": "1500", "MEMORY": str(MEMORY), "EPHEMERAL": str(99 * GIB)},
            {"cpu": "2", "memory": str(MEMORY), "ephemeral-storage": str(99 * GIB)},
            MEMORY,
            id="what the node has left for pods",
        ),
        pytest.param(
            pod_of(resources={"limits": {"memory": "1Gi", "cpu": "1"}}),
            {"CPU": "1", "MILLI": "1000", "MEMORY": str(GIB), "EPHEMERAL": str(99 * GIB)},
            {"cpu": "2", "memory": str(MEMORY), "ephemeral-storage": str(99 * GIB)},
            GIB,
            id="what the pod as a whole has; files do not know of that",
        ),
        pytest.param(
            pod_of({"resources": {"limits": {"memory": "64Mi", "cpu": "100m", "ephemeral-storage": "1Mi"}}}),
            {"CPU": "1", "MILLI": "100", "MEMORY": str(64 * MIB), "EPHEMERAL": str(MIB)},
            {"cpu": "1", "memory": str(64 * MIB), "ephemeral-storage": str(MIB)},
            64 * MIB,
            id="its own limits",
        ),
    ],
)
async def test_what_a_container_is_told(tmp_path, pod, environment, files, size):
    threads = Threads(limit=4)
    clock = SystemClock()
    runtime = FakeRuntime(start=clock.now(), images=(FakeImage(name=IMAGE),))
    directories = RealDirectories(root=tmp_path / "root", threads=threads)
    node = SimulatedNode(clock=clock, runtime=runtime, directories=directories, settings=SETTINGS)
    wanted = DrivenPodSource()
    async with node.run_agent(wanted) as running:
        wanted.add(pod)
        with running.agent.statuses.changes() as changes:
            async with asyncio.timeout(20):
                while (status := running.agent.statuses.get("u")) is None or status.phase != "Running":
                    await changes.get()
        (made,) = runtime.containers()
        told = {each.key: each.value.decode() for each in made.config.envs}
        assert {name: told[name] for name in environment} == environment
        volumes = directories.root / "pods/u/volumes"
        shown = volumes / "kubernetes.io~downward-api/down"
        assert {name: (shown / name).read_text() for name in NAMES} == files
        _, _, options = directories.mounts.mounts[volumes / "kubernetes.io~empty-dir/memory"]
        assert options == (f"size={size}",)
    threads.close()
