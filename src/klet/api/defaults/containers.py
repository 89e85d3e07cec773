"""Defaults of containers of every kind: policies, ports, probes, hooks, amounts."""

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from msgspec.structs import replace

from klet.api.container import (
    Container,
    ContainerPort,
    EnvVar,
    EphemeralContainer,
    ObjectFieldSelector,
    ResourceRequirements,
)
from klet.api.handlers import HTTPGetAction, Lifecycle, LifecycleHandler, Probe
from klet.api.image_reference import image_tag
from klet.api.quantity import Quantity

AnyContainer = TypeVar("AnyContainer", Container, EphemeralContainer)

_TERMINATION_LOG: Final = "/dev/termination-log"
_MILLI: Final = -3
_NANO_PER_MILLI: Final = 10**6
T = TypeVar("T")


def map_tuple(items: tuple[T, ...], change: Callable[[T], T]) -> tuple[T, ...]:
    """Apply a change to each item; the same tuple when none changed."""
    if not items:
        return items
    changed = tuple(map(change, items))
    return items if all(new is old for new, old in zip(changed, items, strict=True)) else changed


def default_container(container: AnyContainer) -> AnyContainer:
    return replace(
        container,
        ports=map_tuple(container.ports, _port),
        env=map_tuple(container.env, _variable),
        resources=round_requirements(container.resources),
        liveness_probe=_probe(container.liveness_probe),
        readiness_probe=_probe(container.readiness_probe),
        startup_probe=_probe(container.startup_probe),
        lifecycle=_lifecycle(container.lifecycle),
        termination_message_path=container.termination_message_path or _TERMINATION_LOG,
        termination_message_policy=container.termination_message_policy or "File",
        image_pull_policy=container.image_pull_policy or pull_policy_for(container.image),
    )


def pull_policy_for(image: str) -> str:
    return "Always" if image_tag(image) == "latest" else "IfNotPresent"


def round_requirements(resources: ResourceRequirements) -> ResourceRequirements:
    limits, requests = round_amounts(resources.limits), round_amounts(resources.requests)
    if limits is resources.limits and requests is resources.requests:
        return resources
    return replace(resources, limits=limits, requests=requests)


def round_amounts(amounts: Mapping[str, Quantity]) -> Mapping[str, Quantity]:
    """Round amounts finer than a thousandth up to one."""
    if all(amount.nano % _NANO_PER_MILLI == 0 for amount in amounts.values()):
        return amounts
    return {name: amount.round_up(_MILLI) for name, amount in amounts.items()}


def default_field_selector(selector: ObjectFieldSelector) -> ObjectFieldSelector:
    return selector if selector.api_version else replace(selector, api_version="v1")


def _port(port: ContainerPort) -> ContainerPort:
    return port if port.protocol else replace(port, protocol="TCP")


def _variable(variable: EnvVar) -> EnvVar:
    source = variable.value_from
    if source is None:
        return variable
    if source.field_ref is not None:
        source = replace(source, field_ref=default_field_selector(source.field_ref))
    if source.file_key_ref is not None and source.file_key_ref.optional is None:
        source = replace(source, file_key_ref=replace(source.file_key_ref, optional=False))
    return variable if source is variable.value_from else replace(variable, value_from=source)


def _probe(probe: Probe | None) -> Probe | None:
    if probe is None:
        return None
    grpc = probe.grpc
    if grpc is not None and grpc.service is None:
        grpc = replace(grpc, service="")
    return replace(
        probe,
        timeout_seconds=probe.timeout_seconds or 1,
        period_seconds=probe.period_seconds or 10,
        success_threshold=probe.success_threshold or 1,
        failure_threshold=probe.failure_threshold or 3,
        http_get=_http_get(probe.http_get),
        grpc=grpc,
    )


def _lifecycle(lifecycle: Lifecycle | None) -> Lifecycle | None:
    if lifecycle is None:
        return None
    post_start, pre_stop = _hook(lifecycle.post_start), _hook(lifecycle.pre_stop)
    return replace(lifecycle, post_start=post_start, pre_stop=pre_stop)


def _hook(hook: LifecycleHandler | None) -> LifecycleHandler | None:
    if hook is None or hook.http_get is None:
        return hook
    return replace(hook, http_get=_http_get(hook.http_get))


def _http_get(action: HTTPGetAction | None) -> HTTPGetAction | None:
    if action is None or (action.path and action.scheme):
        return action
    return replace(action, path=action.path or "/", scheme=action.scheme or "HTTP")
