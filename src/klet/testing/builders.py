"""Short ways to make pods and runtime records for tests."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from klet.api.container import Container, EphemeralContainer, ResourceRequirements
from klet.api.meta import ObjectMeta
from klet.api.pod import Pod, PodSpec
from klet.api.pod_annotations import SOURCE_ANNOTATION
from klet.api.quantity import Quantity
from klet.api.times import Time
from klet.model.pods import PodUID
from klet.model.runtime import (
    ContainerId,
    ContainerRecord,
    PodRuntimeStatus,
    RuntimeContainerState,
    SandboxId,
    SandboxRecord,
)
from klet.runtime.hashing import container_hash

NOW = datetime(2030, 1, 1, 12, 0, 0, tzinfo=UTC)
IMAGE = "klet.local/busybox:1"


def make_container(name: str, *, image: str = IMAGE, restart_policy: str | None = None) -> Container:
    return Container(name=name, image=image, restart_policy=restart_policy, image_pull_policy="IfNotPresent")


def make_pod(
    *containers: str | Container,
    init: Sequence[str | Container] = (),
    name: str = "pod",
    uid: str = "uid-1",
    restart_policy: str = "Always",
    source: str = "",
    deleted: bool = False,
) -> Pod:
    """Return a defaulted pod. Containers may be given by name alone."""
    made = tuple(make_container(c) if isinstance(c, str) else c for c in containers or ("main",))
    made_init = tuple(make_container(c) if isinstance(c, str) else c for c in init)
    return Pod(
        api_version="v1",
        kind="Pod",
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            uid=uid,
            annotations={SOURCE_ANNOTATION: source} if source else {},
            deletion_timestamp=Time.of(NOW) if deleted else None,
        ),
        spec=PodSpec(
            containers=made,
            init_containers=made_init,
            restart_policy=restart_policy,
            dns_policy="Default",
            termination_grace_period_seconds=30,
            enable_service_links=True,
        ),
    )


def with_resources(
    container: Container, *, requests: Mapping[str, str] | None = None, limits: Mapping[str, str] | None = None
) -> Container:
    resources = ResourceRequirements(
        requests={name: Quantity.parse(text) for name, text in (requests or {}).items()},
        limits={name: Quantity.parse(text) for name, text in (limits or {}).items()},
    )
    return replace(container, resources=resources)


def make_sandbox(
    *, attempt: int = 0, ready: bool = True, ip: str = "10.1.0.5", host_network: bool = False
) -> SandboxRecord:
    return SandboxRecord(
        id=SandboxId(f"sandbox-{attempt}"),
        attempt=attempt,
        ready=ready,
        created_at=NOW + timedelta(seconds=attempt),
        ips=(ip,) if ip else (),
        host_network=host_network,
    )


def make_record(
    pod: Pod,
    name: str,
    state: RuntimeContainerState = RuntimeContainerState.RUNNING,
    *,
    exit_code: int = 0,
    reason: str = "",
    restarts: int = 0,
    spec_hash: int | None = None,
    sandbox: str = "sandbox-0",
) -> ContainerRecord:
    """Return a record of one of the pod's containers, with the hash of its spec unless another is given."""
    every: list[Container | EphemeralContainer] = [*pod.spec.containers, *pod.spec.init_containers]
    every += pod.spec.ephemeral_containers
    spec = next(container for container in every if container.name == name)
    exited = state is RuntimeContainerState.EXITED
    return ContainerRecord(
        id=ContainerId(f"{name}-{restarts}"),
        sandbox_id=SandboxId(sandbox),
        name=name,
        attempt=restarts,
        state=state,
        image=spec.image,
        image_ref="sha256:1",
        created_at=NOW + timedelta(seconds=restarts),
        started_at=None if state is RuntimeContainerState.CREATED else NOW,
        finished_at=NOW if exited else None,
        exit_code=exit_code,
        reason=reason or ("Completed" if exited and not exit_code else "Error" if exited else ""),
        spec_hash=container_hash(spec) if spec_hash is None else spec_hash,
        restart_count=restarts,
    )


def make_status(
    pod: Pod, *records: ContainerRecord, sandboxes: Sequence[SandboxRecord] | None = None
) -> PodRuntimeStatus:
    found = (make_sandbox(),) if sandboxes is None else tuple(sandboxes)
    return PodRuntimeStatus(
        uid=PodUID(pod.metadata.uid),
        name=pod.metadata.name,
        namespace=pod.metadata.namespace,
        ips=found[0].ips if found and found[0].ready else (),
        sandboxes=found,
        containers=tuple(sorted(records, key=lambda record: record.created_at, reverse=True)),
    )
