"""What an endpoint of the HTTP API is: paths, methods, the right that it needs, where it is served, its handler."""

from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from functools import partial
from typing import Final, TypeAlias, TypeVar

from aiohttp import web
from msgspec import Struct

from klet.server.routes.checkpoint import CheckpointRoutes
from klet.server.routes.debug import DebugRoutes
from klet.server.routes.fit import FitRoutes
from klet.server.routes.health import HealthRoutes
from klet.server.routes.images import ImageRoutes
from klet.server.routes.klet import KletRoutes
from klet.server.routes.metrics import MetricRoutes
from klet.server.routes.node import NodeRoutes
from klet.server.routes.node_logs import NodeLogRoutes
from klet.server.routes.pods import PodRoutes
from klet.server.routes.pulls import PullRoutes
from klet.server.routes.stats import StatsRoutes
from klet.server.routes.streams import StreamRoutes
from klet.server.routes.usage import UsageRoutes
from klet.server.routes.zpages import FlagzRoutes, StatuszRoutes

Routes: TypeAlias = (
    HealthRoutes
    | PodRoutes
    | StreamRoutes
    | NodeRoutes
    | MetricRoutes
    | StatsRoutes
    | UsageRoutes
    | CheckpointRoutes
    | KletRoutes
    | PullRoutes
    | ImageRoutes
    | FitRoutes
    | NodeLogRoutes
    | DebugRoutes
    | FlagzRoutes
    | StatuszRoutes
)
Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]
FindHandler: TypeAlias = Callable[[Sequence[Routes]], Handler | None]
R = TypeVar(
    "R",
    HealthRoutes,
    PodRoutes,
    StreamRoutes,
    NodeRoutes,
    MetricRoutes,
    StatsRoutes,
    UsageRoutes,
    CheckpointRoutes,
    KletRoutes,
    PullRoutes,
    ImageRoutes,
    FitRoutes,
    NodeLogRoutes,
    DebugRoutes,
    FlagzRoutes,
    StatuszRoutes,
)


class ListenerKind(StrEnum):
    """A listener. Its value is its name in the documentation."""

    API = "API"
    """Port 10250: a client must be known and have the endpoint's right; anonymous users if that is configured."""
    READ_ONLY = "read-only"
    """`readOnlyPort`: every client that can connect."""
    HEALTH = "health"
    """Port 10248: every client that can connect."""
    SOCKET = "socket"
    """`klet.sock`: its owner, without a further check."""


class WithoutDebugging(StrEnum):
    """What becomes of paths with `enableDebuggingHandlers: false`, and always on the read-only port."""

    KEPT = "stays"
    REFUSED = "405"
    GONE = "404"


class EndpointSupport(StrEnum):
    """Whether klet serves what upstream's kubelet serves there."""

    SERVED = "served"
    NOT_YET = "not yet"
    """The path is known, so the client must be authorized; the answer is 404."""
    GATED = "gated"
    """Behind an alpha gate of upstream: served where a listener has its routes, otherwise there is no such path."""


class HandlerSwitch(StrEnum):
    """What a field of the configuration switches off: 405 for every method, with this text of upstream's."""

    LOGS = "logs endpoint is disabled.\n"
    """`enableSystemLogHandler`."""
    PROFILING = "profiling endpoint is disabled.\n"
    """`enableProfilingHandler`."""
    FLAGS = "flags endpoint is disabled.\n"
    """`enableDebugFlagsHandler`."""


class Right(Struct, frozen=True):
    """What the authorizer is asked for: a subresource of this node, with the verb of the method."""

    subresource: str
    or_proxy: bool = False
    """Whether `nodes/proxy` is enough; with the gate KubeletFineGrainedAuthz off, nothing else counts."""
    is_create: bool = False
    """Whether the verb is `create` whatever the method, since a WebSocket begins with GET."""


PROXY: Final = Right("proxy")
CREATE_PROXY: Final = Right("proxy", is_create=True)
PODS: Final = Right("pods", or_proxy=True)
HEALTHZ: Final = Right("healthz", or_proxy=True)
CONFIGZ: Final = Right("configz", or_proxy=True)


class KubeletEndpoint(Struct, frozen=True):
    """One thing that can be asked for, under one or more paths."""

    paths: tuple[str, ...]
    methods: tuple[str, ...]
    """Empty: any."""
    find_handler: FindHandler | None
    about: str
    listeners: frozenset[ListenerKind] | None = None
    """Where it is served, if not where its group is."""
    label: str = ""
    """The path in labels of metrics, if not that of its group."""
    support: EndpointSupport = EndpointSupport.SERVED


class EndpointGroup(Struct, frozen=True, kw_only=True):
    """Endpoints that share a root, a right and where they are served."""

    root: str
    """With a slash at its end, the path without it leads there (307)."""
    is_tree: bool = True
    """Whether every path below the root is known, if only to answer 404; otherwise only those of the endpoints are."""
    right: Right = PROXY
    listeners: frozenset[ListenerKind] = frozenset({ListenerKind.API, ListenerKind.SOCKET})
    without_debugging: WithoutDebugging = WithoutDebugging.REFUSED
    label: str
    """The path in labels of metrics: never what a client has written."""
    is_long_running: bool = False
    """As the label of upstream's metrics has it."""
    switch: HandlerSwitch | None = None
    endpoints: tuple[KubeletEndpoint, ...]

    @property
    def segments(self) -> tuple[str, ...]:
        return tuple(self.root.strip("/").split("/"))

    def listeners_of(self, endpoint: KubeletEndpoint) -> frozenset[ListenerKind]:
        return self.listeners if endpoint.listeners is None else endpoint.listeners


def by_method(owner: type[R], method: Callable[[R, web.Request], Awaitable[web.StreamResponse]]) -> FindHandler:
    """Find the handler among the routes that a listener has; None if it has none of this kind."""

    def find(routes: Sequence[Routes]) -> Handler | None:
        return next((partial(method, each) for each in routes if isinstance(each, owner)), None)

    return find
