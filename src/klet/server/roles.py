"""What the routes need from the rest of the agent."""

from collections.abc import AsyncGenerator, Iterator
from datetime import datetime
from typing import Protocol

from klet.api import klet_v1
from klet.api.klet_v1_fit import FitAnswer
from klet.api.klet_v1_images import ImageGcPreview, NodeImageListing
from klet.api.pod import Pod
from klet.model.log_query import LogQuery
from klet.model.runtime import ContainerId


class ServedPods(Protocol):
    """The pods of this node with their statuses."""

    def pods(self) -> tuple[Pod, ...]: ...

    def find(self, namespace: str, name: str) -> Pod | None: ...

    def runtime_uid(self, uid: str) -> str:
        """Return the UID by which the runtime knows a pod: for the mirror of a static pod, that of the static pod."""
        ...

    def terminating(self) -> tuple[Pod, ...]:
        """Return pods that no source wants any more, as long as something of them runs."""
        ...


class ServedLogs(Protocol):
    """The logs of containers."""

    def read(self, container: ContainerId, query: LogQuery) -> AsyncGenerator[bytes, None]:
        """Yield pieces of the log. The caller closes the generator."""
        ...


class ServedUsage(Protocol):
    """What node, pods and containers use, in Prometheus' text format; each text comes in pieces."""

    async def cadvisor(self) -> Iterator[bytes]: ...

    async def resource(self) -> Iterator[bytes]: ...


class ServedImages(Protocol):
    """The images of the runtime; what is asked is read from it now, and raises KletError if it does not answer."""

    async def images(self) -> NodeImageListing: ...

    async def preview(self) -> ImageGcPreview:
        """Return what image garbage collection would do now; nothing is removed."""
        ...


class ManifestReading(Protocol):
    """Reads a manifest as the pod that it would be on this node."""

    def read(self, data: bytes, *, source: str = "") -> Pod:
        """Return the pod; raises KletError with every problem of the manifest."""
        ...


class ServedFit(Protocol):
    """Knows whether a pod would be admitted."""

    async def look(self, pod: Pod) -> FitAnswer:
        """Return what admission would decide about it now; nothing is changed."""
        ...


class ServedJournal(Protocol):
    """Cause records, and what they explain."""

    def records(
        self, *, namespace: str, name: str, since: datetime | None
    ) -> AsyncGenerator[klet_v1.CauseRecord, None]:
        """Yield records so far."""
        ...

    def follow(self, *, namespace: str, name: str, since: datetime | None) -> AsyncGenerator[klet_v1.CauseRecord, None]:
        """Yield records so far and then each new one."""
        ...

    async def explain(self, *, namespace: str, name: str) -> klet_v1.Explanation | None:
        """Return why a pod is as it is, and its causal timeline; None if nothing is known of it."""
        ...

    async def explain_node(self) -> klet_v1.NodeExplanation:
        """Return why the node is ready or not, condition by condition, and its causal timeline."""
        ...

    async def pods(self) -> klet_v1.RecordedPods:
        """Return the pods that there are records about, also those that are gone."""
        ...
