"""Rules for resource requirements: names, amounts, requests against limits, claims, and the pod level."""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from klet.api.container import ResourceClaim, ResourceRequirements
from klet.api.pod import PodSpec
from klet.api.pod_resources import HUGEPAGES_PREFIX, aggregate_container_requests, is_pod_level_resource
from klet.api.quantity import ZERO, Quantity, QuantityError
from klet.api.validation import formats
from klet.api.validation.errors import (
    FieldErrors,
    duplicate,
    forbidden,
    invalid,
    invalid_each,
    not_found,
    not_supported,
    required,
)
from klet.api.validation.fieldpath import FieldPath
from klet.api.validation.metadata import NOT_NEGATIVE

_COMPUTE: Final = frozenset({"cpu", "memory"})
_CONTAINER_NAMES: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
_WHOLE_NAMES: Final = frozenset(
    {
        *("pods", "resourcequotas", "services", "replicationcontrollers", "secrets", "configmaps"),
        *("persistentvolumeclaims", "services.nodeports", "services.loadbalancers"),
    }
)
_STANDARD_NAMES: Final = frozenset(
    {
        *_CONTAINER_NAMES,
        *(f"{kind}.{name}" for kind in ("requests", "limits") for name in _CONTAINER_NAMES),
        *_WHOLE_NAMES,
        *("storage", "requests.storage"),
    }
)
_POD_LEVEL_NAMES: Final = ("cpu", HUGEPAGES_PREFIX, "memory")

NameRule = Callable[[str, FieldPath], FieldErrors]


def validate_container_resources(
    resources: ResourceRequirements, claim_names: frozenset[str], path: FieldPath
) -> FieldErrors:
    if resources.limits or resources.requests:
        yield from _requirements(resources, _container_name, path)
    if resources.claims:
        yield from _claims(resources.claims, claim_names, path.child("claims"))


def validate_overhead(overhead: Mapping[str, Quantity], path: FieldPath) -> FieldErrors:
    """Check overhead like limits, which its errors name in their path."""
    yield from _requirements(ResourceRequirements(limits=overhead), _container_name, path)


def validate_pod_resources(spec: PodSpec, resources: ResourceRequirements, path: FieldPath) -> FieldErrors:
    if resources.claims:
        yield forbidden(path.child("claims"), "claims may not be set for Resources at pod-level")
    yield from _requirements(resources, _pod_level_name, path)
    for name, total in aggregate_container_requests(spec).items():
        wanted = resources.requests.get(name, ZERO)
        if is_pod_level_resource(name) and total > wanted:
            message = f"must be greater than or equal to aggregate container requests of {total}"
            yield invalid(path.child("requests").key(name), str(wanted), message)
    for position, container in enumerate(spec.containers):
        for name, limit in container.resources.limits.items():
            if name in resources.limits and limit > (most := resources.limits[name]):
                here = path.child("containers").at(position).key(name).child("limits")
                yield invalid(here, str(limit), f"must be less than or equal to pod limits of {most}")


def validate_quantity_value(name: str, amount: Quantity, path: FieldPath) -> FieldErrors:
    if amount.sign < 0:
        yield invalid(path, str(amount), NOT_NEGATIVE)
    if (name in _WHOLE_NAMES or is_extended_resource(name)) and amount.milli_value() % 1000:
        yield invalid(path, str(amount), "must be an integer")


def is_native_resource(name: str) -> bool:
    return "/" not in name or "kubernetes.io/" in name


def is_extended_resource(name: str) -> bool:
    if is_native_resource(name) or name.startswith("requests."):
        return False
    return not formats.label_key(f"requests.{name}")


def _requirements(resources: ResourceRequirements, name_rule: NameRule, path: FieldPath) -> FieldErrors:
    limits, requests = path.child("limits"), path.child("requests")
    for name, amount in resources.limits.items():
        yield from _amount(name, amount, name_rule, limits.key(name))
    for name, amount in resources.requests.items():
        here = requests.key(name)
        yield from name_rule(name, here)
        yield from validate_quantity_value(name, amount, here)
        yield from _against_limit(name, amount, resources.limits.get(name), limits=limits, requests=requests)
        yield from _hugepages(name, amount, here)
    names = {*resources.limits, *resources.requests}
    if not names & _COMPUTE and any(name.startswith(HUGEPAGES_PREFIX) for name in names):
        yield forbidden(path, "HugePages require cpu or memory")


def _amount(name: str, amount: Quantity, name_rule: NameRule, path: FieldPath) -> FieldErrors:
    yield from name_rule(name, path)
    yield from validate_quantity_value(name, amount, path)
    yield from _hugepages(name, amount, path)


def _against_limit(
    name: str, request: Quantity, limit: Quantity | None, *, limits: FieldPath, requests: FieldPath
) -> FieldErrors:
    overcommit = is_native_resource(name) and not name.startswith(HUGEPAGES_PREFIX)
    if limit is None:
        if not overcommit:
            yield required(limits, "Limit must be set for non overcommitable resources")
    elif request != limit and not overcommit:
        yield invalid(requests, str(request), f"must be equal to {name} limit of {limit}")
    elif request > limit:
        yield invalid(requests, str(request), f"must be less than or equal to {name} limit of {limit}")


def _hugepages(name: str, amount: Quantity, path: FieldPath) -> FieldErrors:
    if name.startswith(HUGEPAGES_PREFIX) and not _is_multiple(amount, name.removeprefix(HUGEPAGES_PREFIX)):
        yield invalid(path, str(amount), f"{amount} is not positive integer multiple of {name}")


def _is_multiple(amount: Quantity, page_size: str) -> bool:
    try:
        size = Quantity.parse(page_size)
    except QuantityError:
        return False
    return size.sign > 0 and size.milli_value() % 1000 == 0 and amount.value() % size.value() == 0


def _any_name(name: str, path: FieldPath) -> FieldErrors:
    if messages := formats.label_key(name):
        yield from invalid_each(path, name, messages)
    elif "/" not in name and name not in _STANDARD_NAMES and not _is_hugepages_quota(name):
        yield invalid(path, name, "must be a standard resource type or fully qualified")


def _is_hugepages_quota(name: str) -> bool:
    return name.startswith((HUGEPAGES_PREFIX, f"requests.{HUGEPAGES_PREFIX}"))


def _container_name(name: str, path: FieldPath) -> FieldErrors:
    if name in _CONTAINER_NAMES:
        return
    yield from _any_name(name, path)
    if "/" not in name:
        if not name.startswith(HUGEPAGES_PREFIX):
            yield invalid(path, name, "must be a standard resource for containers")
    elif not is_native_resource(name) and not is_extended_resource(name):
        yield invalid(path, name, "doesn't follow extended resource name standard")


def _pod_level_name(name: str, path: FieldPath) -> FieldErrors:
    broken = False
    for error in _any_name(name, path):
        broken = True
        yield error
    if not broken and not is_pod_level_resource(name):
        yield not_supported(path, name, _POD_LEVEL_NAMES)


def _claims(claims: tuple[ResourceClaim, ...], known: frozenset[str], path: FieldPath) -> FieldErrors:
    seen: set[str] = set()
    requests: Counter[str] = Counter()
    names = f": {', '.join(sorted(known))}" if known else " which is empty"
    rule = f"must be one of the names in pod.spec.resourceClaims{names}"
    for position, claim in enumerate(claims):
        here = path.at(position)
        if not claim.name:
            yield required(here)
            continue
        yield from _claim_use(claim, seen, requests, here)
        if claim.name not in known:
            yield not_found(here, claim.name, rule)


def _claim_use(claim: ResourceClaim, seen: set[str], requests: Counter[str], path: FieldPath) -> FieldErrors:
    """Check that a whole claim and a request inside it are not both used, and nothing twice."""
    if claim.name in seen:
        yield duplicate(path, claim.name)
        return
    key = claim.name
    if claim.request:
        yield from invalid_each(path.child("request"), claim.request, formats.dns_label(claim.request))
        key = f"{claim.name}/{claim.request}"
    if key in seen:
        yield duplicate(path, key)
    elif not claim.request:
        for _ in range(requests[claim.name]):
            yield duplicate(path, claim.name)
    if claim.request and key not in seen:
        requests[claim.name] += 1
    seen.add(key)
