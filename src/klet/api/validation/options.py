"""Switches of pod validation that the caller knows and the pod does not."""

from msgspec import Struct


class PodValidationOptions(Struct, frozen=True):
    """The defaults are those of an API server with its default feature gates; `STATIC_POD` is the kubelet's set."""

    resource_is_pod: bool = True
    allow_privileged: bool = True
    user_namespaces_host_network: bool = False
    container_restart_rules: bool = True
    """Whether containers may have a restart policy of their own."""
    pod_level_resize: bool = False
    restart_all_containers: bool = False
    taint_comparisons: bool = False


API_POD = PodValidationOptions()
STATIC_POD = PodValidationOptions(resource_is_pod=False)
