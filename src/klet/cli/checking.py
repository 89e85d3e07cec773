"""Checks a pod of a manifest as the agent will: defaults applied, every rule looked at."""

import socket
from collections.abc import Sequence

from klet.api.defaults.pod import default_pod
from klet.api.pod import Pod
from klet.api.static_pods import StaticOrigin, default_static_pod, find_static_pod_problem
from klet.api.validation.options import STATIC_POD
from klet.api.validation.pod import validate_pod_create


def check_pod(pod: Pod) -> Sequence[str]:
    """What is wrong with the pod, one line for each rule, beginning with the field."""
    static = default_static_pod(
        default_pod(pod), node_name=socket.gethostname().lower(), origin=StaticOrigin.FILE, location=""
    )
    errors = [str(error) for error in validate_pod_create(static, STATIC_POD)]
    problem = find_static_pod_problem(static)
    return [*errors, f"spec: {problem}"] if problem else errors
