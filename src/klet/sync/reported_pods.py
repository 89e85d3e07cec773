"""The pods of this node as the HTTP API shows them: the wanted ones and those that are being stopped, each with its
newest status.
"""

from datetime import datetime

from msgspec.structs import replace

from klet.api.pod import Pod, PodIP
from klet.api.times import Time
from klet.model.pods import full_name, uid_of
from klet.pods.store import PodStore
from klet.status.board import StatusBoard
from klet.sync.ledger import WorkerLedger
from klet.sync.worker_state import Stage


class ReportedPods:
    """Pods with the statuses of the board."""

    def __init__(
        self, *, pods: PodStore, statuses: StatusBoard, ledger: WorkerLedger, node_ips: tuple[str, ...] = ()
    ) -> None:
        self._pods = pods
        self._statuses = statuses
        self._ledger = ledger
        self._node_ips = node_ips

    def pods(self) -> tuple[Pod, ...]:
        return tuple(self._with_status(pod) for pod in self._pods.all())

    def terminating(self) -> tuple[Pod, ...]:
        wanted = self._pods.uids()
        return tuple(
            self._with_status(_as_deleted(state.pod, state.terminating_at))
            for uid, state in self._ledger.all().items()
            if uid not in wanted and state.stage is Stage.TERMINATING
        )

    def find(self, namespace: str, name: str) -> Pod | None:
        pod = self._pods.by_full_name(f"{name}_{namespace}")
        return self._with_status(pod) if pod is not None else None

    def runtime_uid(self, uid: str) -> str:
        mirror = next((each for each in self._pods.mirrors() if each.metadata.uid == uid), None)
        static = self._pods.static_of(full_name(mirror)) if mirror is not None else None
        return static.metadata.uid if static is not None else uid

    def _with_status(self, pod: Pod) -> Pod:
        status = self._statuses.get(uid_of(pod)) or pod.status
        if pod.spec.host_network and not status.pod_ip and status.phase == "Running":
            # A pod in the host network has the address of the node.
            first = self._node_ips[0] if self._node_ips else ""
            status = replace(status, pod_ip=first, pod_ips=tuple(PodIP(ip=ip) for ip in self._node_ips))
        return replace(pod, api_version="v1", kind="Pod", status=status)


def _as_deleted(pod: Pod, since: datetime | None) -> Pod:
    """Return the pod with a deletion timestamp: a static pod that is being stopped has none of its own."""
    if pod.metadata.deletion_timestamp is not None or since is None:
        return pod
    return replace(pod, metadata=replace(pod.metadata, deletion_timestamp=Time.of(since)))
