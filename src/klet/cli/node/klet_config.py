"""The KletConfiguration of a `klet up` node: a runtime class for each runtime that the machine has, and a kernel that
stays as it is: the machine has other users, and the node may be removed again.
"""

import json
from collections.abc import Iterable

from klet.config.klet import API_VERSION, KIND

RUNC = "runc"
CRUN = "crun"


def build_klet_configuration(*, handlers: Iterable[str]) -> str:
    """Return the file as text: JSON, which is YAML too. Each class has the name of its handler."""
    classes = [
        {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": handler}, "handler": handler}
        for handler in handlers
    ]
    fields = {"apiVersion": API_VERSION, "kind": KIND, "leaveKernelTunables": True, "runtimeClasses": classes}
    return json.dumps(fields, indent=2) + "\n"
