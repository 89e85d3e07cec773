"""Protocols that several packages need. Each is declared here once.

A protocol that only one package needs is declared there, beside the class that needs it.
"""

from collections.abc import Mapping
from typing import Protocol, TypeVar

from klet.aio.broadcast import Subscription
from klet.api.authentication import TokenRequest
from klet.api.base import ApiObject
from klet.api.config import ConfigMap, Secret
from klet.api.event import Event
from klet.api.pod import Pod
from klet.api.quantity import Quantity
from klet.api.storage import CSIDriver
from klet.model.allocation import CpuUse, Pins, PodAllocation
from klet.model.csi import RegisteredDriver
from klet.model.objects import IssuedToken, ObjectRef
from klet.model.pods import PodUID
from klet.model.pull_progress import PullProgress
from klet.model.runtime import ContainerId, PodRuntimeStatus

S = TypeVar("S", bound=ApiObject)


class Part(Protocol):
    """Runs until it is cancelled."""

    async def run(self) -> None: ...


class PodSink(Protocol):
    """Takes the pods that a source has now."""

    def set_pods(self, source: str, pods: tuple[Pod, ...]) -> None: ...


class Publisher(Part, Protocol):
    """Sends something to the API server; what still waits when the agent stops is sent before it ends."""

    @property
    def name(self) -> str:
        """What it sends."""
        ...

    @property
    def waiting(self) -> int:
        """How many wait to be sent."""
        ...

    async def drain(self) -> None:
        """Send what waits, once each. Called when all parts have ended; it is cancelled if that takes too long."""
        ...


class PodsByUid(Protocol):
    """Knows the pods that the node should have."""

    def get(self, uid: PodUID) -> Pod | None: ...


class PodsInRuntime(Protocol):
    """Knows what the runtime has of each pod."""

    def pods(self) -> Mapping[PodUID, PodRuntimeStatus]: ...


class PullReader(Protocol):
    """Knows the images that are being pulled."""

    async def look(self) -> tuple[PullProgress, ...]:
        """Return how far each pull is, the oldest first."""
        ...


class RestartCounts(Protocol):
    """Remembers starts that the runtime has forgotten."""

    async def next_restart_count(self, pod: Pod, container: str) -> int:
        """Return the restart count from other sources, for a container of which the runtime has no record."""
        ...


class ObjectReader(Protocol):
    """Gets config maps and secrets."""

    async def config_map(self, namespace: str, name: str) -> ConfigMap:
        """Return a config map. Raises ObjectMissing if there is none, and another KletError if that cannot be known."""
        ...

    async def secret(self, namespace: str, name: str) -> Secret:
        """Return a secret. Raises as `config_map` does."""
        ...


class ObjectChanges(Protocol):
    """Reports objects that have changed."""

    def changes(self) -> Subscription[ObjectRef]: ...


class ReferredObjects(ObjectReader, ObjectChanges, Protocol):
    """The config maps and secrets of the node's pods, kept while a pod refers to them."""

    def register(self, pod: Pod) -> None:
        """Keep the objects of a pod that is about to use them."""
        ...

    def unregister(self, uid: PodUID) -> None:
        """Drop the objects of a pod that has ended and whose volumes are unmounted."""
        ...


class TokenClient(Protocol):
    """The part of the API client that asks for tokens of service accounts."""

    async def create_sub(self, struct: type[ApiObject], name: str, namespace: str, subresource: str, body: S) -> S: ...

    async def read(self, path: str) -> bytes: ...


class AccountTokens(Protocol):
    """Gets tokens of service accounts; a failure is a KletError."""

    async def get(self, namespace: str, account: str, request: TokenRequest) -> IssuedToken: ...


class NodeResources(Protocol):
    """Knows what the node has for pods."""

    def allocatable(self) -> Mapping[str, Quantity]: ...


class Allocations(Protocol):
    """Knows what each pod was admitted with."""

    def of(self, pod: Pod) -> PodAllocation: ...


class ContainerPins(Protocol):
    """Knows which CPUs and NUMA nodes each container is kept on (InternalContainerLifecycle)."""

    def pins_of(self, uid: PodUID, container: str) -> Pins:
        """Return what the configuration of a container is to name; no I/O."""
        ...

    async def before_start(self, pod: Pod, container: str, container_id: ContainerId, cpus: frozenset[int]) -> None:
        """Note that a container was created on these CPUs and starts now: no init container before it runs any more."""
        ...


class CpuQuotas(Protocol):
    """Knows which pods no CPU limit holds back, since containers of them have CPUs alone."""

    def lifts_pod_quota(self, uid: PodUID) -> bool: ...


class CpuOwners(Protocol):
    """Knows whose the CPUs are."""

    def cpu_use(self) -> CpuUse: ...


class ResourceHolders(Protocol):
    """Knows which containers may still use what they were given."""

    def may_hold(self, uid: PodUID, container: str) -> bool:
        """Return False once a container is in no pod that may run; True while not all pods are known."""
        ...


class RegisteredDrivers(Protocol):
    """Knows the CSI drivers that are registered on this node."""

    def find(self, name: str) -> RegisteredDriver | None: ...


class DriverObjects(Protocol):
    """Knows the CSIDriver objects of the cluster."""

    async def until_synced(self) -> None:
        """Return when they are known. Until then a driver only seems to have no object."""
        ...

    def get(self, name: str) -> CSIDriver | None: ...


class PodCidrUpdater(Protocol):
    """Takes the node's pod CIDRs."""

    async def apply(self, cidrs: tuple[str, ...]) -> bool:
        """Publish them if they are new; return False if they are not."""
        ...


class EventApi(Protocol):
    """Events at the API server."""

    async def create(self, event: Event) -> None: ...

    async def patch_count(self, event: Event) -> None:
        """Write count, time and message of an Event that is there; raises EventGone."""
        ...
