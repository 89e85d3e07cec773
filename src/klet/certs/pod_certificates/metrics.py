"""The metric of the certificates of pods: how many there are of each signer, and in which states."""

from collections import Counter
from collections.abc import Callable
from typing import Final

from klet.aio.clock import Clock
from klet.api.pod import Pod
from klet.certs.pod_certificates.board import PodCertificates
from klet.certs.pod_certificates.states import (
    DENIED,
    EXPIRED,
    FAILED,
    FRESH,
    NOT_YET_ISSUED,
    OVERDUE_FOR_REFRESH,
    name_state,
    projections_of,
)
from klet.metrics import Label, MetricRegistry, ObjectName, Reading

_STATE: Final = Label("state", frozenset({NOT_YET_ISSUED, DENIED, FAILED, FRESH, OVERDUE_FOR_REFRESH, EXPIRED}))


def register_pod_certificates(
    registry: MetricRegistry, board: PodCertificates, list_pods: Callable[[], tuple[Pod, ...]], clock: Clock
) -> None:
    """Register what is counted on each scrape: names of signers are those of the pods that are there."""

    def read() -> Reading:
        now = clock.now()
        return Counter(
            (source.signer_name, name_state(state, now=now))
            for pod in list_pods()
            for key, source in projections_of(pod).items()
            if (state := board.get(key)) is not None
        )

    registry.computed(
        "kubelet_podcertificate_states",
        "Certificates of pods (podCertificate sources of projected volumes), by signer and state.",
        read,
        (ObjectName("signer_name"), _STATE),
    )
