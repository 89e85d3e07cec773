"""Reads pods out of the runtime: which exist, and everything it knows of one (GetPods, GetPodStatus)."""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from ipaddress import ip_address
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace

from klet.api.container_status import ContainerUser, LinuxContainerUser
from klet.api.pod_annotations import SOURCE_ANNOTATION
from klet.cri.errors import BadAnswer, CriNotFound
from klet.cri.port import RuntimeService
from klet.host.cgroups.resources import millicpu_from_quota, millicpu_from_shares
from klet.model.foreign_text import LONGEST_WORD, shorten
from klet.model.pods import PodUID
from klet.model.runtime import (
    START_ERROR,
    ContainerId,
    ContainerRecord,
    FirstStart,
    GivenResources,
    PodRuntimeStatus,
    RuntimeContainerState,
    SandboxId,
    SandboxRecord,
)
from klet.runtime import labels
from klet.runtime.kill.termination import TerminationFiles, find_termination_message, read_termination_message
from klet.runtime.stop_signals import read_stop_signal
from klet.wire import cri_v1_pb2 as cri

# Bytes. More than the API shows of an end, which is MAX_MESSAGES of klet.status.containers.
_LONGEST_MESSAGE = 16 * 1024
# Digits of a number of 64 bits, with its sign.
_LONGEST_NUMBER = 20
_CANCELLED = "context canceled"
_SHIM_FAILED = "failed to start shim: start failed: "
_KILLED = "signal: killed"
_NOTHING_GIVEN = GivenResources()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STATES = {
    cri.CONTAINER_CREATED: RuntimeContainerState.CREATED,
    cri.CONTAINER_RUNNING: RuntimeContainerState.RUNNING,
    cri.CONTAINER_EXITED: RuntimeContainerState.EXITED,
}


RecordBuilder: TypeAlias = Callable[[cri.ContainerStatus, str, str], ContainerRecord]


class _Known(NamedTuple):
    """What a record was last made of."""

    status: cri.ContainerStatus
    sandbox_id: str
    termination_message: str
    record: ContainerRecord


class PodReader:
    """Reads pods from the runtime. An unchanged container keeps its record object."""

    def __init__(self, *, runtime: RuntimeService, files: TerminationFiles) -> None:
        self._runtime = runtime
        self._files = files
        self._known: dict[PodUID, dict[str, _Known]] = {}

    async def list_pods(self) -> dict[PodUID, PodRuntimeStatus]:
        """Return every pod that has a sandbox or container in the runtime, dead or alive, as the lists show it."""
        sandboxes = await self._runtime.list_pod_sandbox(cri.ListPodSandboxRequest())
        containers = await self._runtime.list_containers(cri.ListContainersRequest())
        return group_listed(sandboxes.items, containers.containers)

    async def owner_of(self, container_id: str) -> PodUID | None:
        """Return the pod that a container or sandbox belongs to; None if the runtime does not know the id."""
        containers = await self._runtime.list_containers(
            cri.ListContainersRequest(filter=cri.ContainerFilter(id=container_id))
        )
        for container in containers.containers:
            return _owner(container.labels.get(labels.POD_UID, ""))
        sandboxes = await self._runtime.list_pod_sandbox(
            cri.ListPodSandboxRequest(filter=cri.PodSandboxFilter(id=container_id))
        )
        for sandbox in sandboxes.items:
            return _owner(sandbox.metadata.uid)
        return None

    async def read(self, uid: PodUID) -> PodRuntimeStatus:
        """Return everything the runtime knows of one pod now."""
        sandbox_request = cri.ListPodSandboxRequest()
        sandbox_request.filter.label_selector[labels.POD_UID] = uid
        listed = await self._runtime.list_pod_sandbox(sandbox_request)
        sandboxes = [answer for item in listed.items if (answer := await self._sandbox(item.id)) is not None]
        container_request = cri.ListContainersRequest()
        container_request.filter.label_selector[labels.POD_UID] = uid
        found = await self._runtime.list_containers(container_request)
        sandbox_of = {item.id: item.pod_sandbox_id for item in found.containers}
        containers = [status for id_ in sandbox_of if (status := await self._container(id_)) is not None]
        return await self._build(uid, sandboxes, containers, sandbox_of)

    async def read_first(self, uid: PodUID, first: FirstStart) -> PodRuntimeStatus:
        """Return the status of a pod that was just started for the first time, without listing."""
        containers = [status for id_ in first.containers if (status := await self._container(id_)) is not None]
        if not first.sandbox.ready or not containers or len(containers) < len(first.containers):
            return await self.read(uid)
        sandbox_of: dict[str, str] = dict.fromkeys(first.containers, first.sandbox.id)
        found = await self._build(uid, [], containers, sandbox_of)
        return replace(found, ips=first.sandbox.ips, sandboxes=(first.sandbox,))

    async def _build(
        self,
        uid: PodUID,
        sandboxes: list[cri.PodSandboxStatus],
        containers: list[cri.ContainerStatus],
        sandbox_of: Mapping[str, str],
    ) -> PodRuntimeStatus:
        words = {
            status.id: await read_termination_message(self._files, find_termination_message(status))
            for status in containers
            if status.state == cri.CONTAINER_EXITED
        }
        read: dict[str, _Known] = {}
        build = _build_changed(self._known.get(uid, {}), read)
        pod = build_status(uid, sandboxes, containers, sandbox_of, termination_message=words, build=build)
        if read:
            self._known[uid] = read
        else:
            self._known.pop(uid, None)
        return pod

    async def _sandbox(self, sandbox_id: str) -> cri.PodSandboxStatus | None:
        try:
            answer = await self._runtime.pod_sandbox_status(cri.PodSandboxStatusRequest(pod_sandbox_id=sandbox_id))
        except CriNotFound:
            return None  # removed between the list and this call
        _check_id("sandbox", sandbox_id, answer.status.id)
        return answer.status

    async def _container(self, container_id: str) -> cri.ContainerStatus | None:
        try:
            answer = await self._runtime.container_status(cri.ContainerStatusRequest(container_id=container_id))
        except CriNotFound:
            return None
        _check_id("container", container_id, answer.status.id)
        return answer.status


def _check_id(what: str, asked: str, answered: str) -> None:
    """Check that an answer is about the object that was asked for."""
    if answered != asked:
        raise BadAnswer(f"asked for {what} {asked}, the runtime answered with {shorten(answered, LONGEST_WORD)}")


def _build_changed(known: Mapping[str, _Known], read: dict[str, _Known]) -> RecordBuilder:
    """Return a builder that makes new records only for changed containers, and keeps what was read."""

    def build(container: cri.ContainerStatus, sandbox_id: str, termination_message: str) -> ContainerRecord:
        before = known.get(container.id)
        if before is None or before[:3] != (container, sandbox_id, termination_message):
            record = build_container_record(container, sandbox_id, termination_message)
            before = _Known(container, sandbox_id, termination_message, record)
        read[container.id] = before
        return before.record

    return build


def group_listed(
    sandboxes: Iterable[cri.PodSandbox], containers: Iterable[cri.Container]
) -> dict[PodUID, PodRuntimeStatus]:
    """Group list answers by pod; what belongs to no pod is another use of the same runtime."""
    sandboxes_by_uid: dict[str, list[cri.PodSandbox]] = {}
    for sandbox in sandboxes:
        sandboxes_by_uid.setdefault(sandbox.metadata.uid, []).append(sandbox)
    containers_by_uid: dict[str, list[cri.Container]] = {}
    for container in containers:
        containers_by_uid.setdefault(container.labels.get(labels.POD_UID, ""), []).append(container)
    uids = [uid for text in dict.fromkeys((*sandboxes_by_uid, *containers_by_uid)) if (uid := _owner(text)) is not None]
    return {uid: build_listed(uid, sandboxes_by_uid.get(uid, []), containers_by_uid.get(uid, [])) for uid in uids}


def _owner(text: str) -> PodUID | None:
    """Return the pod that the runtime names; None for what no kubelet can have made."""
    return text if isinstance(text, PodUID) else None


def build_listed(uid: PodUID, sandboxes: list[cri.PodSandbox], containers: list[cri.Container]) -> PodRuntimeStatus:
    """Return what the lists show of one pod: no addresses, no ends, no hashes."""
    sandboxes = sorted(sandboxes, key=lambda s: (s.metadata.attempt, s.created_at), reverse=True)
    containers = sorted(containers, key=lambda c: c.created_at, reverse=True)
    newest = sandboxes[0].metadata if sandboxes else None
    return PodRuntimeStatus(
        uid=uid,
        name=newest.name if newest else containers[0].labels.get(labels.POD_NAME, ""),
        namespace=newest.namespace if newest else containers[0].labels.get(labels.POD_NAMESPACE, ""),
        sandboxes=tuple(
            SandboxRecord(
                id=SandboxId(sandbox.id),
                attempt=sandbox.metadata.attempt,
                ready=sandbox.state == cri.SANDBOX_READY,
                created_at=from_nanoseconds(sandbox.created_at),
                source=sandbox.annotations.get(SOURCE_ANNOTATION, ""),
            )
            for sandbox in sandboxes
        ),
        containers=tuple(
            ContainerRecord(
                id=ContainerId(container.id),
                sandbox_id=SandboxId(container.pod_sandbox_id),
                name=container.metadata.name,
                attempt=container.metadata.attempt,
                state=state_of(container.state),
                created_at=from_nanoseconds(container.created_at),
            )
            for container in containers
        ),
    )


def build_status(
    uid: PodUID,
    sandboxes: list[cri.PodSandboxStatus],
    containers: list[cri.ContainerStatus],
    sandbox_of: Mapping[str, str],
    *,
    termination_message: Mapping[str, str] = MappingProxyType({}),
    build: RecordBuilder | None = None,
) -> PodRuntimeStatus:
    """Turn CRI answers into records, newest first; termination messages are by container."""
    build = build or build_container_record
    sandboxes = sorted(sandboxes, key=lambda s: (s.metadata.attempt, s.created_at), reverse=True)
    containers = sorted(containers, key=lambda c: c.created_at, reverse=True)
    records = tuple(build_sandbox_record(sandbox) for sandbox in sandboxes)
    newest = sandboxes[0].metadata if sandboxes else None
    return PodRuntimeStatus(
        uid=uid,
        name=newest.name if newest else _label(containers, labels.POD_NAME),
        namespace=newest.namespace if newest else _label(containers, labels.POD_NAMESPACE),
        ips=records[0].ips if records and records[0].ready else (),
        sandboxes=records,
        containers=tuple(
            build(container, sandbox_of[container.id], termination_message.get(container.id, ""))
            for container in containers
        ),
    )


def state_of(state: cri.ContainerState) -> RuntimeContainerState:
    return _STATES.get(state, RuntimeContainerState.UNKNOWN)


def _label(containers: list[cri.ContainerStatus], key: str) -> str:
    return containers[0].labels.get(key, "") if containers else ""


def build_sandbox_record(sandbox: cri.PodSandboxStatus) -> SandboxRecord:
    network = sandbox.linux.namespaces.options.network
    return SandboxRecord(
        id=SandboxId(sandbox.id),
        attempt=sandbox.metadata.attempt,
        ready=sandbox.state == cri.SANDBOX_READY,
        created_at=from_nanoseconds(sandbox.created_at),
        ips=_ips(sandbox.network),
        host_network=network == cri.NODE,
        source=sandbox.annotations.get(SOURCE_ANNOTATION, ""),
    )


def _ips(network: cri.PodSandboxNetworkStatus) -> tuple[str, ...]:
    """Return all addresses, or none if one of them is not an address."""
    texts = [network.ip, *(extra.ip for extra in network.additional_ips)] if network.ip else []
    try:
        return tuple(_written_address(text) for text in texts)
    except ValueError:
        return ()


@lru_cache(maxsize=1024)
def _written_address(text: str) -> str:
    """Return the address in canonical form; cached, as every read of a pod needs it."""
    return str(ip_address(text))


def build_container_record(
    container: cri.ContainerStatus, sandbox_id: str = "", termination_message: str = ""
) -> ContainerRecord:
    """Return one container as a record; the CRI's status does not name its sandbox."""
    state = RuntimeContainerState.CREATED if was_broken_off(container) else state_of(container.state)
    exited = state is RuntimeContainerState.EXITED
    annotations = container.annotations
    return ContainerRecord(
        id=ContainerId(container.id),
        sandbox_id=SandboxId(sandbox_id),
        name=container.labels.get(labels.CONTAINER_NAME, container.metadata.name),
        attempt=container.metadata.attempt,
        state=state,
        image=container.image.image,
        image_ref=container.image_ref,
        created_at=from_nanoseconds(container.created_at),
        started_at=None if state is RuntimeContainerState.CREATED else _instant(container.started_at),
        finished_at=_instant(container.finished_at) if exited else None,
        exit_code=container.exit_code if exited else 0,
        reason=shorten(container.reason, LONGEST_WORD) if exited else "",
        message=_end_message(container, termination_message) if exited else "",
        spec_hash=_number(annotations.get(labels.HASH, ""), base=16),
        restart_count=_number(annotations.get(labels.RESTART_COUNT, "")),
        log_path=container.log_path,
        resources=read_resources(container.resources.linux),
        user=_user(container),
        stop_signal=read_stop_signal(container),
        recursive_read_only=frozenset(
            [mount.container_path for mount in container.mounts if mount.recursive_read_only]
        ),
        image_volumes=frozenset([mount.image.image for mount in container.mounts if mount.HasField("image")]),
        origin=labels.read_origin(annotations),
    )


def _end_message(container: cri.ContainerStatus, termination_message: str) -> str:
    left = _LONGEST_MESSAGE - len(termination_message.encode()) - 2
    said = shorten(container.message, max(left, LONGEST_WORD))
    return ": ".join(text for text in (said, termination_message) if text)


def read_resources(given: cri.LinuxContainerResources) -> GivenResources | None:
    """Return what the runtime says a container has (toKubeContainerResources); None if it says nothing."""
    if not (given.cpu_quota or given.cpu_shares or given.memory_limit_in_bytes):
        return None
    limit = millicpu_from_quota(given.cpu_quota, given.cpu_period) if given.cpu_period > 0 else 0
    resources = GivenResources(
        cpu_request=millicpu_from_shares(given.cpu_shares) or None,
        cpu_limit=limit if limit > 0 else None,
        memory_limit=given.memory_limit_in_bytes if given.memory_limit_in_bytes > 0 else None,
    )
    return None if resources == _NOTHING_GIVEN else resources


def _user(container: cri.ContainerStatus) -> ContainerUser | None:
    if not container.HasField("user"):
        return None
    if not container.user.HasField("linux"):
        return ContainerUser()
    linux = container.user.linux
    return ContainerUser(
        linux=LinuxContainerUser(uid=linux.uid, gid=linux.gid, supplemental_groups=tuple(linux.supplemental_groups))
    )


def was_broken_off(container: cri.ContainerStatus) -> bool:
    """Return whether the caller of the start went away meanwhile, as a killed agent does: it never ran nor failed.

    containerd shows it as ended, like a container that cannot run at all.
    """
    return (
        container.state == cri.CONTAINER_EXITED
        and container.reason == START_ERROR
        and not container.started_at
        and (_CANCELLED in container.message or _KILLED in container.message.partition(_SHIM_FAILED)[2])
    )


def _number(text: str, *, base: int = 10) -> int:
    """Return an annotation's number; what is missing or not a number counts as zero, as upstream has it."""
    try:
        return int(text, base) if len(text) <= _LONGEST_NUMBER else 0
    except ValueError:
        return 0


def from_nanoseconds(value: int) -> datetime:
    return _EPOCH + timedelta(0, 0, value // 1000)


def _instant(value: int) -> datetime | None:
    return from_nanoseconds(value) if value else None
