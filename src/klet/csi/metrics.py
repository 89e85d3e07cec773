"""The metric of calls to CSI drivers."""

from typing import Final

from klet.csi import calls
from klet.metrics import FewValues, Histogram, Label, MetricRegistry
from klet.wire.codes import Code
from klet.wire.methods import methods_of

STORAGE_BOUNDS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 25, 50, 120, 300, 600)
"""Upper bounds of what is done to volumes, in seconds; upstream's."""
NO_CODE: Final = "unknown-non-grpc"
_MOST_DRIVERS: Final = 32


def register_csi_calls(registry: MetricRegistry) -> Histogram:
    """Register upstream's histogram; its labels are those that CsiConnection observes with."""
    methods = frozenset(method.path for method in methods_of(calls.NODE_SERVICE).values())
    return registry.histogram(
        "csi_operations_seconds",
        "Container Storage Interface operation duration with gRPC error code status total",
        STORAGE_BOUNDS,
        (
            FewValues("driver_name", _MOST_DRIVERS),
            Label("method_name", methods),
            Label("grpc_status_code", frozenset({*Code, NO_CODE})),
            Label("migrated", frozenset({"true", "false"})),
        ),
    )
