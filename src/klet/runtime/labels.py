"""Labels, annotations and log paths that tie CRI objects to pods, exactly as upstream writes them.

Both kubelets must be able to take over each other's containers, so nothing here may differ by a letter.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from klet.api.codec import DecodeError, decode
from klet.api.container import Container, ContainerPort, EphemeralContainer
from klet.api.handlers import Lifecycle, LifecycleHandler
from klet.api.meta import ObjectMeta
from klet.api.pod import Pod, PodSpec
from klet.model.cri_labels import CONTAINER_NAME as CONTAINER_NAME
from klet.model.cri_labels import POD_NAME as POD_NAME
from klet.model.cri_labels import POD_NAMESPACE as POD_NAMESPACE
from klet.model.cri_labels import POD_UID as POD_UID
from klet.model.cri_labels import TERMINATION_GRACE_PERIOD as TERMINATION_GRACE_PERIOD
from klet.model.pods import PodUID
from klet.model.runtime import ContainerOrigin, ContainerRecord, PodRuntimeStatus
from klet.runtime.hashing import container_hash, go_json

HASH = "io.kubernetes.container.hash"
RESTART_COUNT = "io.kubernetes.container.restartCount"
TERMINATION_MESSAGE_PATH = "io.kubernetes.container.terminationMessagePath"
TERMINATION_MESSAGE_POLICY = "io.kubernetes.container.terminationMessagePolicy"
DELETION_GRACE_PERIOD = "io.kubernetes.pod.deletionGracePeriod"
PRE_STOP_HANDLER = "io.kubernetes.container.preStopHandler"
PORTS = "io.kubernetes.container.ports"

# At most nine digits: others may write there, and a count has 32 bits.
_LOG_FILE = re.compile(r"([0-9]{1,9})\.log(\..*)?", re.DOTALL)
_LEGACY_NAME_LIMIT = 251


def pod_labels(pod: Pod) -> dict[str, str]:
    return {
        POD_NAME: pod.metadata.name,
        POD_NAMESPACE: pod.metadata.namespace,
        POD_UID: pod.metadata.uid,
    }


def sandbox_labels(pod: Pod) -> dict[str, str]:
    return {**pod.metadata.labels, **pod_labels(pod)}


def container_labels(pod: Pod, container: Container | EphemeralContainer) -> dict[str, str]:
    return {**pod_labels(pod), CONTAINER_NAME: container.name}


def container_annotations(pod: Pod, container: Container | EphemeralContainer, *, restart_count: int) -> dict[str, str]:
    """Return what a kubelet must remember of a container after the pod object is gone."""
    annotations = {
        HASH: f"{container_hash(container):x}",
        RESTART_COUNT: str(restart_count),
        TERMINATION_MESSAGE_PATH: container.termination_message_path,
        TERMINATION_MESSAGE_POLICY: container.termination_message_policy,
    }
    if pod.metadata.deletion_grace_period_seconds is not None:
        annotations[DELETION_GRACE_PERIOD] = str(pod.metadata.deletion_grace_period_seconds)
    if pod.spec.termination_grace_period_seconds is not None:
        annotations[TERMINATION_GRACE_PERIOD] = str(pod.spec.termination_grace_period_seconds)
    if container.lifecycle is not None and container.lifecycle.pre_stop is not None:
        annotations[PRE_STOP_HANDLER] = go_json(container.lifecycle.pre_stop)
    if container.ports:
        annotations[PORTS] = go_json(container.ports)
    return annotations


def read_origin(annotations: Mapping[str, str]) -> ContainerOrigin:
    """Read back what `container_annotations` wrote; what is missing or unreadable counts as not set."""
    return ContainerOrigin(
        termination_grace=_seconds(annotations.get(TERMINATION_GRACE_PERIOD)),
        deletion_grace=_seconds(annotations.get(DELETION_GRACE_PERIOD)),
        pre_stop=_handler(annotations.get(PRE_STOP_HANDLER)),
        ports=_ports(annotations.get(PORTS)),
    )


def restore_container(record: ContainerRecord) -> Container:
    """Return the spec of a container, as far as it remembers it itself."""
    hook = record.origin.pre_stop
    return Container(
        name=record.name,
        image=record.image,
        ports=record.origin.ports,
        lifecycle=Lifecycle(pre_stop=hook) if hook is not None else None,
    )


def restore_pod(record: ContainerRecord, *, uid: PodUID, name: str, namespace: str) -> Pod:
    """Return a pod with this one container, to stop it without the pod object (restoreSpecsFromContainerLabels)."""
    origin = record.origin
    return Pod(
        metadata=ObjectMeta(
            name=name, namespace=namespace, uid=uid, deletion_grace_period_seconds=origin.deletion_grace
        ),
        spec=PodSpec(
            containers=(restore_container(record),), termination_grace_period_seconds=origin.termination_grace
        ),
    )


def pod_log_directory(logs: Path, pod: Pod) -> Path:
    return logs / log_directory_name(pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)


def log_directory_name(namespace: str, name: str, uid: str) -> str:
    return f"{namespace}_{name}_{uid}"


def log_directory_owner(name: str) -> PodUID | None:
    """Return the pod whose logs a directory of this name holds; None if it is not named like one of a pod."""
    parts = name.split("_")
    return parts[2] if len(parts) == 3 and all(parts) and isinstance(parts[2], PodUID) else None


def container_log_path(container: str, restart_count: int) -> str:
    """Return the path relative to the pod's log directory, as the CRI wants it."""
    return f"{container}/{restart_count}.log"


def legacy_log_name(pod: Pod, container: str, container_id: str) -> str:
    """Name of the symlink that log collectors of the whole node look for."""
    return _legacy_name(pod.metadata.name, pod.metadata.namespace, container, container_id)


def legacy_log_names(status: PodRuntimeStatus) -> tuple[str, ...]:
    """Return the names of all links to logs of a pod."""
    return tuple(_legacy_name(status.name, status.namespace, record.name, record.id) for record in status.containers)


def restart_count_from_logs(names: list[str]) -> int:
    """Return the next restart count by the log files of a container whose records the runtime has lost."""
    counts = [int(match[1]) for name in names if (match := _LOG_FILE.fullmatch(name))]
    return max(counts) + 1 if counts else 0


def _legacy_name(pod: str, namespace: str, container: str, container_id: str) -> str:
    base = f"{pod}_{namespace}_{container}-{container_id}"
    return base.encode()[:_LEGACY_NAME_LIMIT].decode(errors="ignore") + ".log"


def _seconds(text: str | None) -> int | None:
    try:
        return int(text) if text is not None else None
    except ValueError:
        return None


def _handler(text: str | None) -> LifecycleHandler | None:
    try:
        return decode(LifecycleHandler, text) if text is not None else None
    except DecodeError:
        return None


def _ports(text: str | None) -> tuple[ContainerPort, ...]:
    try:
        return decode(Container, f'{{"name": "", "ports": {text}}}').ports if text is not None else ()
    except DecodeError:
        return ()
