"""Each kubelet takes over the other's containers: klet makes what upstream has made, and reads it back."""

import json
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict, ParseDict
from msgspec.structs import replace

from klet.api.codec import convert
from klet.api.container import Container, EphemeralContainer
from klet.api.pod import Pod, PodStatus
from klet.model.allocation import PodResources, desired_allocation
from klet.model.images import ImageUser
from klet.model.network import DnsConfig
from klet.model.pods import uid_of
from klet.model.qos import compute_qos
from klet.model.runtime import ContainerRecord, PodRuntimeStatus
from klet.runtime import labels
from klet.runtime.actions import compute_pod_actions
from klet.runtime.config.container_config import ContainerInputs, ContainerSettings, build_container_config
from klet.runtime.config.linux_resources import ResourceRules
from klet.runtime.config.mounts import MountInputs
from klet.runtime.config.sandbox_config import SandboxSettings, build_sandbox_config
from klet.runtime.config.security import SecuritySettings
from klet.runtime.hashing import container_hash
from klet.runtime.reader import build_status
from klet.runtime.restart import restarts_after
from klet.status.generate import PodStatusInputs, generate_status
from klet.wire import cri_v1_pb2 as cri

RECORDED = Path(__file__).parents[2] / "data" / "recorded_cri"
LOGS = Path("/var/log/pods")
TARGET = "target"
SECOND = 1_000_000_000


def _load(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((RECORDED / f"{name}.json").read_text())
    return found


NAMES = sorted(path.stem for path in RECORDED.glob("*.json"))
OBJECTS = {name: _load(name) for name in NAMES}
CONTAINERS = [
    pytest.param(name, index, id=f"{name}: {recorded['config']['metadata']['name'][:20]}")
    for name in NAMES
    for index, recorded in enumerate(OBJECTS[name]["containers"])
]
ON_BOTH_VERSIONS = pytest.mark.parametrize("is_unified", [pytest.param(True, id="v2"), pytest.param(False, id="v1")])


def pod_of(name: str) -> Pod:
    return convert(Pod, OBJECTS[name]["pod"])


def spec_of(pod: Pod, name: str) -> Container | EphemeralContainer:
    every: list[Container | EphemeralContainer] = [*pod.spec.containers, *pod.spec.init_containers]
    return next(c for c in [*every, *pod.spec.ephemeral_containers] if c.name == name)


def rules(*, is_unified: bool) -> ResourceRules:
    return ResourceRules(
        is_unified=is_unified,
        memory_capacity=32 << 30,
        hugepage_sizes=(2 << 20, 1 << 30),
        kills_whole_container=True,
    )


def test_there_are_recordings():
    assert len(NAMES) >= 12


@ON_BOTH_VERSIONS
@pytest.mark.parametrize("name", NAMES)
def test_a_sandbox_is_described_as_upstream_does(name, is_unified):
    recorded = OBJECTS[name]
    wanted = recorded["sandbox"]
    if not is_unified:
        old = recorded["resourcesOnCgroup1"]
        linux = {**wanted["linux"], "resources": old["sandbox"], "overhead": old["overhead"]}
        wanted = {**wanted, "linux": linux}
    pod = pod_of(name)
    made = build_sandbox_config(
        pod,
        desired_allocation(pod),
        attempt=2,
        dns=DnsConfig(servers=("10.96.0.10",), searches=("svc.cluster.local",), options=("ndots:5",)),
        cgroup_parent=f"/kubepods/pod{pod.metadata.uid}",
        settings=SandboxSettings(logs=LOGS, resources=rules(is_unified=is_unified)),
    )
    assert MessageToDict(made) == MessageToDict(ParseDict(wanted, cri.PodSandboxConfig()))


@ON_BOTH_VERSIONS
@pytest.mark.parametrize(("name", "index"), CONTAINERS)
def test_a_container_is_described_as_upstream_does(name, index, is_unified):
    recorded = OBJECTS[name]["containers"][index]
    wanted = recorded["config"]
    own_name = wanted["metadata"]["name"]
    if not is_unified:
        linux = {**wanted["linux"], "resources": OBJECTS[name]["resourcesOnCgroup1"]["containers"][own_name]}
        wanted = {**wanted, "linux": linux}
    pod = pod_of(name)
    spec = spec_of(pod, own_name)
    inputs = ContainerInputs(
        restart_count=recorded["restartCount"],
        allocation=desired_allocation(pod),
        image_ref=f"sha256:{own_name}",
        image_user=ImageUser(uid=0),
        environment={},
        mounts=MountInputs(volumes={}),
        target_id=TARGET if recorded["kind"] == "ephemeralContainers" else "",
    )
    settings = ContainerSettings(
        security=SecuritySettings(seccomp_root="/var/lib/kubelet/seccomp"), resources=rules(is_unified=is_unified)
    )
    made = build_container_config(pod, spec, inputs, settings)
    assert MessageToDict(made) == MessageToDict(ParseDict(wanted, cri.ContainerConfig()))
    assert container_hash(spec) == recorded["hash"]
    assert labels.legacy_log_name(pod, own_name, "0123456789abcdef") == recorded["legacyLogName"]


def as_the_runtime_shows(name: str) -> PodRuntimeStatus:
    """Upstream's pod, well under way: plain init containers are done, everything else runs."""
    recorded = OBJECTS[name]
    pod = pod_of(name)
    config = ParseDict(recorded["sandbox"], cri.PodSandboxConfig())
    options = config.linux.security_context.namespace_options
    sandbox = cri.PodSandboxStatus(
        id="sandbox",
        metadata=config.metadata,
        state=cri.SANDBOX_READY,
        created_at=SECOND,
        labels=dict(config.labels),
        annotations=dict(config.annotations),
        network=cri.PodSandboxNetworkStatus(ip="" if pod.spec.host_network else "10.1.0.5"),
        linux=cri.LinuxPodSandboxStatus(namespaces=cri.Namespace(options=options)),
    )
    plain = {c.name for c in pod.spec.init_containers if c.restart_policy != "Always"}
    shown = []
    for number, each in enumerate(recorded["containers"]):
        made = ParseDict(each["config"], cri.ContainerConfig())
        is_done = made.metadata.name in plain
        shown.append(
            cri.ContainerStatus(
                id=f"{made.metadata.name}-id",
                metadata=made.metadata,
                state=cri.CONTAINER_EXITED if is_done else cri.CONTAINER_RUNNING,
                reason="Completed" if is_done else "",
                created_at=(2 + number) * SECOND,
                started_at=(3 + number) * SECOND,
                finished_at=(4 + number) * SECOND if is_done else 0,
                image=made.image,
                image_ref=made.image.image,
                labels=dict(made.labels),
                annotations=dict(made.annotations),
                log_path=f"{config.log_directory}/{made.log_path}",
            )
        )
    return build_status(uid_of(pod), [sandbox], shown, {each.id: "sandbox" for each in shown})


@pytest.mark.parametrize("name", NAMES)
def test_upstreams_containers_are_taken_over_as_they_are(name):
    pod, seen = pod_of(name), as_the_runtime_shows(name)
    assert compute_pod_actions(pod, seen, probes={}).is_idle
    assert (seen.name, seen.namespace) == (pod.metadata.name, pod.metadata.namespace)


@pytest.mark.parametrize("name", NAMES)
def test_upstreams_pod_is_reported_as_running_and_ready(name):
    pod, seen = pod_of(name), as_the_runtime_shows(name)
    inputs = PodStatusInputs(
        previous=PodStatus(),
        resources=PodResources(admitted=desired_allocation(pod)),
        runtime_name="containerd",
        qos_class=compute_qos(pod),
        restarts=lambda container, code: restarts_after(container, pod, code),
        needs_sandbox=False,
    )
    status = generate_status(pod, seen, inputs)
    assert status.phase == "Running"
    assert {each.type: each.status for each in status.conditions}["Ready"] == "True"
    counts = {each["config"]["metadata"]["name"]: each["restartCount"] for each in OBJECTS[name]["containers"]}
    every = (*status.init_container_statuses, *status.container_statuses, *status.ephemeral_container_statuses)
    assert {each.name: each.restart_count for each in every} == counts
    assert {each.name: each.container_id for each in every} == {each: f"containerd://{each}-id" for each in counts}


def record_of(seen: PodRuntimeStatus, name: str) -> ContainerRecord:
    record = seen.newest(name)
    assert record is not None
    return record


@pytest.mark.parametrize(("name", "index"), CONTAINERS)
def test_what_upstreams_container_remembers_is_what_its_spec_says(name, index):
    pod, seen = pod_of(name), as_the_runtime_shows(name)
    recorded = OBJECTS[name]["containers"][index]
    spec = spec_of(pod, recorded["config"]["metadata"]["name"])
    record = record_of(seen, spec.name)
    assert (record.spec_hash, record.restart_count) == (recorded["hash"], recorded["restartCount"])
    assert record.origin.pre_stop == (spec.lifecycle.pre_stop if spec.lifecycle is not None else None)
    assert record.origin.ports == spec.ports
    assert record.origin.termination_grace == pod.spec.termination_grace_period_seconds
    assert record.origin.deletion_grace == pod.metadata.deletion_grace_period_seconds
    own = labels.container_log_path(spec.name, record.restart_count)
    assert record.log_path == str(labels.pod_log_directory(LOGS, pod) / own)


@pytest.mark.parametrize("name", [name for name in NAMES if pod_of(name).metadata.deletion_timestamp is None])
def test_only_another_image_restarts_upstreams_container(name):
    pod, seen = pod_of(name), as_the_runtime_shows(name)
    first, *others = pod.spec.containers
    harmless = replace(first, command=("other",), env=(), tty=not first.tty)
    assert compute_pod_actions(_with(pod, harmless, others), seen, probes={}).is_idle
    actions = compute_pod_actions(_with(pod, replace(first, image="other"), others), seen, probes={})
    assert actions.start == (0,)
    assert [kill.name for kill in actions.kill] == [first.name]


def _with(pod: Pod, first: Container, others: list[Container]) -> Pod:
    return replace(pod, spec=replace(pod.spec, containers=(first, *others)))
