"""Metrics of the sandboxes and containers that the agent starts, and of their hooks."""

from typing import Final

from msgspec import Struct

from klet.api.container import Container, EphemeralContainer
from klet.api.pod import Pod
from klet.metrics import DEFAULT_BOUNDS, Counter, FewValues, Histogram, Label, MetricRegistry
from klet.runtime import errors

_HANDLER: Final = FewValues("runtime_handler", 64)
_TYPE: Final = Label("container_type", frozenset({"container", "init_container", "ephemeral_container"}))
_CODE: Final = Label(
    "code",
    frozenset(
        {
            errors.INVALID_IMAGE_NAME,
            errors.ERR_IMAGE_PULL,
            errors.ERR_IMAGE_NEVER_PULL,
            errors.IMAGE_INSPECT_ERROR,
            errors.IMAGE_PULL_BACKOFF,
            errors.CREATE_CONFIG_ERROR,
            errors.CREATE_CONTAINER_ERROR,
            errors.RUN_CONTAINER_ERROR,
            errors.POST_START_HOOK_ERROR,
            "RegistryUnavailable",
            "SignatureValidationFailed",
            errors.IMAGE_VOLUME_MOUNT_FAILED,
            "PreCreateHookError",
            "PreStartHookError",
        }
    ),
)


class SandboxMetrics(Struct, frozen=True, kw_only=True):
    """Pods that were given a sandbox, tries included, the tries that failed, and how long they took."""

    started: Counter
    failed: Counter
    run_duration: Histogram
    run_failed: Counter
    user_namespaced: Counter
    user_namespaced_failed: Counter


class ContainerMetrics(Struct, frozen=True, kw_only=True):
    """Starts of containers, those that failed, and the images that they mount."""

    started: Counter
    failed: Counter
    image_volumes: Counter
    image_volumes_mounted: Counter
    image_volumes_failed: Counter


class HookMetrics(Struct, frozen=True, kw_only=True):
    """What happened to hooks."""

    http_fallbacks: Counter
    sleeps_cut_short: Counter


def register_sandboxes(registry: MetricRegistry) -> SandboxMetrics:
    return SandboxMetrics(
        started=registry.counter("kubelet_started_pods_total", "Sandboxes that were to be created for pods."),
        failed=registry.counter("kubelet_started_pods_errors_total", "Sandboxes that could not be created."),
        run_duration=registry.histogram(
            "kubelet_run_podsandbox_duration_seconds",
            "How long the runtime took to make a sandbox, by its handler.",
            DEFAULT_BOUNDS,
            (_HANDLER,),
        ),
        run_failed=registry.counter(
            "kubelet_run_podsandbox_errors_total",
            "Sandboxes that the runtime did not make, by its handler.",
            (_HANDLER,),
        ),
        user_namespaced=registry.counter(
            "kubelet_started_user_namespaced_pods_total", "Sandboxes of pods with a user namespace of their own."
        ),
        user_namespaced_failed=registry.counter(
            "kubelet_started_user_namespaced_pods_errors_total",
            "Sandboxes of pods with a user namespace of their own that could not be created.",
        ),
    )


def register_containers(registry: MetricRegistry) -> ContainerMetrics:
    return ContainerMetrics(
        started=registry.counter(
            "kubelet_started_containers_total", "Containers that were to be started, by their kind.", (_TYPE,)
        ),
        failed=registry.counter(
            "kubelet_started_containers_errors_total",
            "Containers that could not be started, by their kind and the reason.",
            (_TYPE, _CODE),
        ),
        image_volumes=registry.counter("kubelet_image_volume_requested_total", "Image volumes of started containers."),
        image_volumes_mounted=registry.counter(
            "kubelet_image_volume_mounted_succeed_total", "Image volumes that were mounted."
        ),
        image_volumes_failed=registry.counter(
            "kubelet_image_volume_mounted_errors_total", "Image volumes that could not be mounted."
        ),
    )


def register_hooks(registry: MetricRegistry) -> HookMetrics:
    return HookMetrics(
        http_fallbacks=registry.counter(
            "kubelet_lifecycle_handler_http_fallbacks_total",
            "HTTPS hooks that were answered in plain HTTP and sent again that way.",
        ),
        sleeps_cut_short=registry.counter(
            "kubelet_sleep_action_terminated_early_total", "Sleep hooks that the grace period ended."
        ),
    )


def container_type(pod: Pod, container: Container | EphemeralContainer) -> str:
    """Return upstream's word for the kind of a container."""
    if isinstance(container, EphemeralContainer):
        return "ephemeral_container"
    return "init_container" if any(each is container for each in pod.spec.init_containers) else "container"


def count_image_volumes(pod: Pod, container: Container | EphemeralContainer) -> int:
    """Return how many images a container mounts."""
    images = {volume.name for volume in pod.spec.volumes if volume.image is not None}
    return len(images & {mount.name for mount in container.volume_mounts}) if images else 0
