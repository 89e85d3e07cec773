"""The schema of the agent's own API for `klet fit`: would a pod be admitted, and if not, why not.

The rules are those of `klet_v1`: fields are only added, with a default, and readers ignore what they do not know.
"""

from datetime import datetime
from typing import Final

from msgspec import Struct

from klet.api.klet_v1 import ExplainedPod

FIT: Final = "/klet/v1/fit"
SOURCE_QUERY: Final = "source"
STATIC: Final = "static"
API: Final = "api"


class FitReason(Struct, frozen=True, kw_only=True):
    """One reason against a pod."""

    reason: str
    message: str
    why: str = ""
    """The same in more words, where there are any."""


class FitResource(Struct, frozen=True, kw_only=True):
    """What a pod requests of one resource, as manifests write amounts."""

    resource: str
    requested: str
    used: str
    """What other pods have."""
    allocatable: str
    """What the node has for pods in all."""
    short: bool = False
    """Whether too little is left."""


class FitVictim(Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod that would be stopped to make room."""

    namespace: str
    name: str
    uid: str
    qos_class: str = ""


class FitPlacement(Struct, frozen=True, kw_only=True, rename="camel"):
    """Where a container would be placed."""

    container: str
    cpus: tuple[int, ...] = ()
    numa_nodes: tuple[int, ...] = ()


class FitAnswer(Struct, frozen=True, kw_only=True):
    """`POST /klet/v1/fit`: what admission would decide about the pod of a manifest now. Nothing is changed.

    The answer is 400 with the reasons as text for a manifest that no source would take.
    """

    pod: ExplainedPod
    now: datetime
    source: str
    """`static` or `api`: as what the pod was looked at."""
    fits: bool
    """Whether it would be admitted, perhaps after others have been stopped."""
    reasons: tuple[FitReason, ...] = ()
    """Everything that speaks against it; the first one is what would be reported."""
    victims: tuple[FitVictim, ...] = ()
    """Who would be stopped for it, in this order."""
    replaces: ExplainedPod | None = None
    """The pod of the same name that is there already, and was not counted."""
    resources: tuple[FitResource, ...] = ()
    placement: tuple[FitPlacement, ...] = ()
    """Of containers that would have CPUs or NUMA nodes of their own."""
