"""Board: the certificates of the node's pods. Written by the manager only, read by the volumes that show them.

Keys stay in memory: a restart of the agent requests new certificates, as upstream's does.
"""

from collections.abc import Iterator

from klet.aio.broadcast import Broadcast, Subscription
from klet.api.pod import Pod
from klet.certs.errors import PodCertificateMissing
from klet.certs.pod_certificates.states import (
    CertificateInitial,
    CertificateIssued,
    CertificateState,
    CertificateWaiting,
    ProjectionKey,
    read_credentials,
)
from klet.model.objects import ObjectRef, PodCredentials, certificates_of
from klet.model.pods import PodUID, uid_of


class NoPodCertificates:
    """The certificates of a node that requests none: there is no API server, or the feature is off."""

    def read(self, pod: Pod, volume: str, index: int) -> PodCredentials:  # noqa: ARG002 - the same for all of them
        raise PodCertificateMissing("PodCertificate projection is not supported: the gate PodCertificateRequest is off")

    def changes(self) -> Subscription[ObjectRef]:
        return Broadcast[ObjectRef]().subscribe()


class PodCertificates:
    """The newest state of each podCertificate source."""

    def __init__(self) -> None:
        self._states: dict[ProjectionKey, CertificateState] = {}
        self._changes = Broadcast[ObjectRef]()

    def get(self, key: ProjectionKey) -> CertificateState | None:
        return self._states.get(key)

    def known(self) -> Iterator[ProjectionKey]:
        return iter(tuple(self._states))

    def put(self, key: ProjectionKey, state: CertificateState) -> None:
        before = self._states.get(key)
        self._states[key] = state
        if _shown(before) != _shown(state):
            self._changes.send(certificates_of(key.namespace, key.pod))

    def forget(self, uid: PodUID) -> None:
        """Drop the keys and certificates of a pod that is gone."""
        for key in [key for key in self._states if key.uid == uid]:
            del self._states[key]

    def read(self, pod: Pod, volume: str, index: int) -> PodCredentials:
        """Return what a volume shows; raises PodCertificateMissing."""
        key = ProjectionKey(pod.metadata.namespace, pod.metadata.name, uid_of(pod), volume, index)
        state = self._states.get(key)
        if state is None:
            raise PodCertificateMissing(f"no credentials yet for key={key}")
        return read_credentials(state)

    def changes(self) -> Subscription[ObjectRef]:
        """Subscribe to pods whose volumes have something else to show."""
        return self._changes.subscribe()


def _shown(state: CertificateState | None) -> object:
    """Return the part of a state that volumes see."""
    if state is None or isinstance(state, CertificateInitial | CertificateWaiting):
        return None
    return state.credentials if isinstance(state, CertificateIssued) else state
