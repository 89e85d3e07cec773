"""The group of a volume, as its PersistentVolume says, becomes a group of the pod that uses it."""

import asyncio

import pytest
from msgspec.structs import replace

from klet.aio.clock import SystemClock
from klet.api.claim import PersistentVolumeClaim
from klet.api.codec import convert
from klet.api.pod import Pod
from klet.api.storage import PersistentVolume
from klet.app.node import NodeSpecification, build_node
from klet.simulation import DrivenPodSource, SimulatedNode
from klet.simulation.node import running, simulated_settings
from klet.testing.builders import IMAGE
from klet.testing.fake_runtime import FakeImage, FakeRuntime
from klet.testing.in_process import run_in_process

GID = "pv.beta.kubernetes.io/gid"


class BoundClaim:
    """One claim, bound to a directory of the machine."""

    def __init__(self, annotations):
        self._annotations = annotations

    async def claim(self, namespace, name):
        meta = {"name": name, "namespace": namespace, "uid": "claim"}
        return convert(
            PersistentVolumeClaim, {"metadata": meta, "spec": {"volumeName": "pv"}, "status": {"phase": "Bound"}}
        )

    async def persistent_volume(self, name):
        spec = {"hostPath": {"path": "/"}, "volumeMode": "Filesystem", "claimRef": {"uid": "claim"}}
        return convert(PersistentVolume, {"metadata": {"name": name, "annotations": self._annotations}, "spec": spec})


def pod_with_disk(**context):
    main = {"name": "c", "image": IMAGE, "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
    disk = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
    spec = {"containers": [main], "volumes": [disk], "securityContext": context, "enableServiceLinks": False}
    return convert(Pod, {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": spec})


async def run_pod(pod, annotations):
    """The groups of the sandbox and of the container of a pod, once it runs."""
    clock = SystemClock()
    node = SimulatedNode(clock=clock, runtime=FakeRuntime(start=clock.now(), images=(FakeImage(name=IMAGE),)))
    wanted = DrivenPodSource()
    async with run_in_process(node.runtime, clock=clock) as client:
        ports = node.build_ports(client, wanted, seed=1)
        ports = replace(ports, volumes=replace(ports.volumes, claims=BoundClaim(annotations)))
        wired = build_node(NodeSpecification(settings=simulated_settings(8), ports=ports))
        async with running(wired.parts), asyncio.timeout(20):
            wanted.add(pod)
            with node.journal.follow() as news:
                while not any(cause.finding.decision == "Started" for cause in node.journal.all()):
                    await news.get()
    [sandbox], [container] = node.runtime.sandboxes(), node.runtime.containers()
    contexts = sandbox.config.linux.security_context, container.config.linux.security_context
    return tuple(list(context.supplemental_groups) for context in contexts)


@pytest.mark.parametrize(
    ("annotations", "context", "groups"),
    [
        pytest.param({GID: "5555"}, {}, ([5555], [5555]), id="a group"),
        pytest.param({GID: "5555"}, {"fsGroup": 1, "supplementalGroups": [2]}, ([1, 5555, 2], [1, 2, 5555]),
                     id="beside those of the pod"),
        pytest.param({GID: "5555"}, {"supplementalGroups": [5555]}, ([5555], [5555]), id="one that the pod lists"),
        pytest.param({GID: "staff"}, {}, ([], []), id="no number"),
        pytest.param({}, {}, ([], []), id="no annotation"),
    ],
)  # fmt: skip
async def test_groups(annotations, context, groups):
    assert await run_pod(pod_with_disk(**context), annotations) == groups
