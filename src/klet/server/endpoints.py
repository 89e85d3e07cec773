"""The endpoints of the HTTP API in one table: path, methods, the right that they need, where they are served, handler.

Everything that knows paths comes from this table: routing and its 404 and 405 (`application`), which paths there are
at all (`paths`), the right to ask the authorizer for (`auth/attributes`), labels of metrics (`paths`), and the tables
in docs/kubelet-api.md (`scripts/generate-endpoints`). A handler is a method of one of the classes in `routes/`.
"""

from typing import Final

from klet.api import klet_v1, klet_v1_fit, klet_v1_images, klet_v1_topology
from klet.server.endpoint_types import (
    CONFIGZ,
    CREATE_PROXY,
    HEALTHZ,
    PODS,
    EndpointGroup,
    EndpointSupport,
    HandlerSwitch,
    KubeletEndpoint,
    ListenerKind,
    Right,
    WithoutDebugging,
    by_method,
)
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

_READ: Final = frozenset({ListenerKind.API, ListenerKind.READ_ONLY, ListenerKind.SOCKET})
_KEPT: Final = WithoutDebugging.KEPT
_GONE: Final = WithoutDebugging.GONE
_NOT_YET: Final = EndpointSupport.NOT_YET
_GATED: Final = EndpointSupport.GATED
_ANY: Final = ()
_GET: Final = ("GET",)
_POST: Final = ("POST",)
_GET_POST: Final = ("GET", "POST")


def _containers(root: str) -> tuple[str, ...]:
    return f"{root}/{{namespace}}/{{pod}}/{{container}}", f"{root}/{{namespace}}/{{pod}}/{{uid}}/{{container}}"


_CHECK_ALL: Final = by_method(HealthRoutes, HealthRoutes.check_all)
_CHECK_ONE: Final = by_method(HealthRoutes, HealthRoutes.check_one)
_STREAMS: Final = "`input`, `output`, `error`, `tty`; must be an upgrade"
_LOG_OPTIONS: Final = (
    "a container's log: `follow`, `previous`, `tailLines`, `sinceSeconds`, `sinceTime`, `limitBytes`, `timestamps`, "
    "`stream` (gate PodLogsQuerySplitStreams)"
)
_NODE_LOGS: Final = (
    "files of `/var/log`; with the gate NodeLogQuery and `enableSystemLogQuery` also logs of services: `query`, "
    "`sinceTime`, `untilTime`, `tailLines`, `pattern`, `boot`"
)
_CONFIGURATION: Final = (
    "the effective KubeletConfiguration; header values, users, passwords and queries of URLs are `<masked>`"
)

ENDPOINT_GROUPS: Final[tuple[EndpointGroup, ...]] = (
    EndpointGroup(
        root="/healthz",
        is_tree=False,
        right=HEALTHZ,
        listeners=_READ,
        without_debugging=_KEPT,
        label="healthz",
        endpoints=(
            KubeletEndpoint(
                ("/healthz",), _ANY, _CHECK_ALL, "all checks; `verbose`, `exclude=<check>`", frozenset(ListenerKind)
            ),
            KubeletEndpoint(("/healthz/ping",), _ANY, _CHECK_ONE, "one check", frozenset(ListenerKind)),
            KubeletEndpoint(("/healthz/log", "/healthz/syncloop"), _ANY, _CHECK_ONE, "one check"),
            KubeletEndpoint(("/healthz/device-plugin",), _ANY, _CHECK_ONE, "one check", support=_NOT_YET),
        ),
    ),
    EndpointGroup(
        root="/pods",
        right=PODS,
        listeners=_READ,
        without_debugging=_KEPT,
        label="pods",
        endpoints=(
            KubeletEndpoint(
                ("/pods", "/pods/"),
                _GET,
                by_method(PodRoutes, PodRoutes.list_pods),
                "pods of this node with their statuses",
            ),
        ),
    ),
    EndpointGroup(
        root="/runningpods/",
        right=PODS,
        label="runningpods",
        endpoints=(
            KubeletEndpoint(
                ("/runningpods/",),
                _GET,
                by_method(NodeRoutes, NodeRoutes.list_running),
                "what the runtime runs, as far as it knows",
            ),
        ),
    ),
    EndpointGroup(
        root="/containerLogs",
        label="containerLogs",
        endpoints=(
            KubeletEndpoint(
                ("/containerLogs/{namespace}/{pod}/{container}",),
                _GET,
                by_method(PodRoutes, PodRoutes.read_logs),
                _LOG_OPTIONS,
            ),
        ),
    ),
    EndpointGroup(
        root="/exec",
        right=CREATE_PROXY,
        label="exec",
        is_long_running=True,
        endpoints=(
            KubeletEndpoint(
                _containers("/exec"),
                _GET_POST,
                by_method(StreamRoutes, StreamRoutes.exec),
                f"`command` (repeated), {_STREAMS}",
            ),
        ),
    ),
    EndpointGroup(
        root="/attach",
        right=CREATE_PROXY,
        label="attach",
        is_long_running=True,
        endpoints=(
            KubeletEndpoint(_containers("/attach"), _GET_POST, by_method(StreamRoutes, StreamRoutes.attach), _STREAMS),
        ),
    ),
    EndpointGroup(
        root="/portForward",
        right=CREATE_PROXY,
        label="portForward",
        endpoints=(
            KubeletEndpoint(
                ("/portForward/{namespace}/{pod}", "/portForward/{namespace}/{pod}/{uid}"),
                _GET_POST,
                by_method(StreamRoutes, StreamRoutes.port_forward),
                "`port` with WebSockets; must be an upgrade",
            ),
        ),
    ),
    EndpointGroup(
        root="/run",
        right=CREATE_PROXY,
        label="run",
        endpoints=(
            KubeletEndpoint(
                _containers("/run"),
                _POST,
                by_method(StreamRoutes, StreamRoutes.run),
                "`cmd`, split at spaces; the answer is all that the command says",
            ),
        ),
    ),
    EndpointGroup(
        root="/configz",
        is_tree=False,
        right=CONFIGZ,
        without_debugging=_GONE,
        label="configz",
        endpoints=(
            KubeletEndpoint(("/configz",), _ANY, by_method(NodeRoutes, NodeRoutes.show_configuration), _CONFIGURATION),
        ),
    ),
    EndpointGroup(
        root="/klet",
        listeners=frozenset({ListenerKind.SOCKET}),
        without_debugging=_KEPT,
        label="klet",
        endpoints=(
            KubeletEndpoint(
                (klet_v1.PODS,),
                _GET,
                by_method(KletRoutes, KletRoutes.list_pods),
                "`/pods`, and those that are still terminating",
            ),
            KubeletEndpoint(
                (klet_v1.JOURNAL,),
                _GET,
                by_method(KletRoutes, KletRoutes.read_journal),
                "cause records, one on each line; `follow`, `namespace`, `name`, `since`",
            ),
            KubeletEndpoint(
                (klet_v1.NODE,), _GET, by_method(KletRoutes, KletRoutes.explain_node), "why the node is ready or not"
            ),
            KubeletEndpoint(
                (klet_v1.EXPLAIN,),
                _GET,
                by_method(KletRoutes, KletRoutes.list_recorded),
                "the pods that there are records about",
            ),
            KubeletEndpoint(
                (f"{klet_v1.EXPLAIN}/{{namespace}}/{{pod}}",),
                _GET,
                by_method(KletRoutes, KletRoutes.explain_pod),
                "why a pod is as it is",
            ),
            KubeletEndpoint(
                (klet_v1_topology.TOPOLOGY,),
                _GET,
                by_method(KletRoutes, KletRoutes.show_topology),
                "the machine: sockets, NUMA nodes, cores, CPUs, memory, and which containers have what of it alone",
            ),
            KubeletEndpoint(
                (klet_v1.PULLS,),
                _GET,
                by_method(PullRoutes, PullRoutes.list_pulls),
                "how far the images are that are being pulled",
            ),
            KubeletEndpoint(
                (klet_v1_images.IMAGES,),
                _GET,
                by_method(ImageRoutes, ImageRoutes.list_images),
                "the images of the runtime: size, who uses them, since when they are unused; 503 if it does not answer",
            ),
            KubeletEndpoint(
                (klet_v1_images.IMAGE_GC,),
                _GET,
                by_method(ImageRoutes, ImageRoutes.preview_collection),
                "what image garbage collection would remove now, and why it keeps the rest; nothing is removed",
            ),
            KubeletEndpoint(
                (klet_v1_fit.FIT,),
                _POST,
                by_method(FitRoutes, FitRoutes.look),
                "whether the pod of the manifest in the body would be admitted now, and if not, every reason; `source`",
            ),
        ),
    ),
    EndpointGroup(
        root="/stats/",
        right=Right("stats"),
        listeners=_READ,
        without_debugging=_KEPT,
        label="stats",
        endpoints=(
            KubeletEndpoint(
                ("/stats/summary", "/stats/summary/"),
                _GET_POST,
                by_method(StatsRoutes, StatsRoutes.summarize),
                "what the node and its pods use; `only_cpu_and_memory=true`",
            ),
        ),
    ),
    EndpointGroup(
        root="/metrics",
        is_tree=False,
        right=Right("metrics"),
        listeners=_READ,
        without_debugging=_KEPT,
        label="metrics",
        endpoints=(
            KubeletEndpoint(("/metrics",), _ANY, by_method(MetricRoutes, MetricRoutes.show), "metrics of the agent"),
            KubeletEndpoint(
                ("/metrics/cadvisor",),
                _ANY,
                by_method(UsageRoutes, UsageRoutes.show_cadvisor),
                "usage of cgroups, cAdvisor's metrics",
                label="metrics/cadvisor",
            ),
            KubeletEndpoint(
                ("/metrics/resource",),
                _ANY,
                by_method(UsageRoutes, UsageRoutes.show_resource),
                "CPU, memory and swap of node, pods and containers",
                label="metrics/resource",
            ),
            KubeletEndpoint(
                ("/metrics/probes",),
                _ANY,
                by_method(MetricRoutes, MetricRoutes.show_probes),
                "results of probes",
                label="metrics/probes",
            ),
            KubeletEndpoint(
                ("/metrics/slis",),
                _ANY,
                by_method(MetricRoutes, MetricRoutes.show_slis),
                "results of health checks; DELETE forgets them",
                label="other",
            ),
        ),
    ),
    EndpointGroup(
        root="/logs/",
        right=Right("log"),
        label="logs",
        switch=HandlerSwitch.LOGS,
        endpoints=(
            KubeletEndpoint(
                ("/logs/", "/logs/{path:(?s:.+)}"), _GET, by_method(NodeLogRoutes, NodeLogRoutes.show), _NODE_LOGS
            ),
        ),
    ),
    EndpointGroup(
        root="/checkpoint/",
        right=Right("checkpoint"),
        without_debugging=_GONE,
        label="checkpoint",
        endpoints=(
            KubeletEndpoint(
                ("/checkpoint/{namespace}/{pod}/{container}",),
                _POST,
                by_method(CheckpointRoutes, CheckpointRoutes.make),
                "writes a checkpoint of a container to a file on the node; `timeout` in seconds",
            ),
        ),
    ),
    EndpointGroup(
        root="/debug/pprof/",
        label="debug",
        is_long_running=True,
        switch=HandlerSwitch.PROFILING,
        endpoints=(
            KubeletEndpoint(
                ("/debug/pprof/{profile}",),
                _GET,
                by_method(DebugRoutes, DebugRoutes.show_profile),
                "`profile`: CPU time of the agent for `seconds` (30), as `go tool pprof` reads it; `cmdline`, `symbol`",
            ),
        ),
    ),
    EndpointGroup(
        root="/debug/flags/v",
        is_tree=False,
        without_debugging=_GONE,
        label="debug",
        is_long_running=True,
        switch=HandlerSwitch.FLAGS,
        endpoints=(
            KubeletEndpoint(
                ("/debug/flags/v",),
                _ANY,
                by_method(DebugRoutes, DebugRoutes.change_verbosity),
                "PUT sets how much the agent logs (`-v`); other methods: 406",
            ),
        ),
    ),
    EndpointGroup(
        root="/flagz",
        is_tree=False,
        right=Right("configz"),
        without_debugging=_GONE,
        label="other",
        endpoints=(
            KubeletEndpoint(
                ("/flagz",),
                _GET,
                by_method(FlagzRoutes, FlagzRoutes.show),
                "the flags; gate ComponentFlagz",
                support=_GATED,
            ),
        ),
    ),
    EndpointGroup(
        root="/statusz",
        is_tree=False,
        right=Right("statusz"),
        listeners=_READ,
        without_debugging=_KEPT,
        label="other",
        endpoints=(
            KubeletEndpoint(
                ("/statusz",),
                _GET,
                by_method(StatuszRoutes, StatuszRoutes.show),
                "version, uptime, paths; gate ComponentStatusz",
                support=_GATED,
            ),
        ),
    ),
)
