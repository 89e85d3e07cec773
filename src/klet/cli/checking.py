"""Checks a pod of a manifest as the agent will: defaults applied, every rule looked at."""

from collections.abc import Sequence

from klet.api.pod import Pod
from klet.api.validation.pod import validate_pod_create


def check_pod(pod: Pod) -> Sequence[str]:
    """What is wrong with the pod, one line for each rule, beginning with the field."""
    return [str(error) for error in validate_pod_create(pod)]
