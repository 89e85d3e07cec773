"""Rules for what decides where a pod runs: affinity, tolerations, topology spread, gates."""

from collections.abc import Iterable
from typing import Final

from klet.api.meta import LabelSelector
from klet.api.placement import (
    Affinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PodAffinity,
    PodAffinityTerm,
    PodAntiAffinity,
    Toleration,
    TopologySpreadConstraint,
)
from klet.api.pod import PodReadinessGate, PodSchedulingGate
from klet.api.selectors import is_integer, parse_int64
from klet.api.validation import formats
from klet.api.validation.errors import (
    FieldErrors,
    duplicate,
    forbidden,
    invalid,
    invalid_each,
    not_supported,
    required,
)
from klet.api.validation.fieldpath import FieldPath
from klet.api.validation.metadata import validate_label_selector
from klet.api.validation.rendering import go_quote

REQUIRED_TERMS: Final = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED_TERMS: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_TOLERATION_OPERATORS: Final = ("Equal", "Exists")
_SPREAD_ACTIONS: Final = ("DoNotSchedule", "ScheduleAnyway")
_INCLUSION_POLICIES: Final = ("Honor", "Ignore")
_NOT_AN_OPERATOR: Final = "not a valid selector operator"
_IN_BOTH: Final = "exists in both matchLabelKeys and labelSelector"
_NO_SELECTOR: Final = "must not be specified when labelSelector is not set"
_POSITIVE: Final = "must be greater than zero"


def validate_affinity(affinity: Affinity | None, path: FieldPath) -> FieldErrors:
    if affinity is None:
        return
    if (node := affinity.node_affinity) is not None:
        here = path.child("nodeAffinity")
        if node.required_during_scheduling_ignored_during_execution is not None:
            demanded = node.required_during_scheduling_ignored_during_execution
            yield from _node_selector(demanded, here.child(REQUIRED_TERMS))
        for position, term in enumerate(node.preferred_during_scheduling_ignored_during_execution):
            term_path = here.child(PREFERRED_TERMS).at(position)
            yield from _weight(term.weight, term_path.child("weight"))
            # Preferences may name label values that no node can have.
            yield from _node_term(term.preference, term_path.child("preference"), strict=False)
    yield from _pod_affinity(affinity.pod_affinity, path.child("podAffinity"))
    yield from _pod_affinity(affinity.pod_anti_affinity, path.child("podAntiAffinity"))


def validate_tolerations(
    tolerations: tuple[Toleration, ...], path: FieldPath, *, comparisons: bool = False
) -> FieldErrors:
    """Check tolerations. `comparisons` allows the operators Lt and Gt (gate TaintTolerationComparisonOperators)."""
    for position, toleration in enumerate(tolerations):
        yield from _toleration(toleration, path.at(position), comparisons=comparisons)


def validate_readiness_gates(gates: tuple[PodReadinessGate, ...], path: FieldPath) -> FieldErrors:
    for position, gate in enumerate(gates):
        here = path.at(position).child("conditionType")
        yield from invalid_each(here, gate.condition_type, formats.label_key(gate.condition_type))


def validate_scheduling_gates(gates: tuple[PodSchedulingGate, ...], path: FieldPath) -> FieldErrors:
    seen: set[str] = set()
    for position, gate in enumerate(gates):
        yield from invalid_each(path.at(position), gate.name, formats.label_key(gate.name))
        if gate.name in seen:
            yield duplicate(path.at(position), gate.name)
        seen.add(gate.name)


def validate_topology_spread(constraints: tuple[TopologySpreadConstraint, ...], path: FieldPath) -> FieldErrors:
    pairs = [(constraint.topology_key, constraint.when_unsatisfiable) for constraint in constraints]
    last = {pair: position for position, pair in enumerate(pairs)}
    for position, (constraint, pair) in enumerate(zip(constraints, pairs, strict=True)):
        here = path.at(position)
        action = constraint.when_unsatisfiable
        if constraint.max_skew <= 0:
            yield invalid(here.child("maxSkew"), constraint.max_skew, _POSITIVE)
        if not constraint.topology_key:
            yield required(here.child("topologyKey"), "can not be empty")
        if action not in _SPREAD_ACTIONS:
            yield not_supported(here.child("whenUnsatisfiable"), action, _SPREAD_ACTIONS)
        if last[pair] > position:
            yield duplicate(here.child("{topologyKey, whenUnsatisfiable}"), f"{{{pair[0]}, {pair[1]}}}")
        yield from _min_domains(constraint, here.child("minDomains"))
        for wire_name, policy in (
            ("nodeAffinityPolicy", constraint.node_affinity_policy),
            ("nodeTaintsPolicy", constraint.node_taints_policy),
        ):
            if policy is not None and policy not in _INCLUSION_POLICIES:
                yield not_supported(here.child(wire_name), policy, _INCLUSION_POLICIES)
        yield from _spread_label_keys(constraint, here.child("matchLabelKeys"))
        yield from validate_label_selector(constraint.label_selector, here.child("labelSelector"))


def _node_selector(selector: NodeSelector, path: FieldPath) -> FieldErrors:
    here = path.child("nodeSelectorTerms")
    if not selector.node_selector_terms:
        yield required(here, "must have at least one node selector term")
    for position, term in enumerate(selector.node_selector_terms):
        yield from _node_term(term, here.at(position), strict=True)


def _node_term(term: NodeSelectorTerm, path: FieldPath, *, strict: bool) -> FieldErrors:
    for position, requirement in enumerate(term.match_expressions):
        yield from _node_labels(requirement, path.child("matchExpressions").at(position), strict=strict)
    for position, requirement in enumerate(term.match_fields):
        yield from _node_fields(requirement, path.child("matchFields").at(position))


def _node_labels(requirement: NodeSelectorRequirement, path: FieldPath, *, strict: bool) -> FieldErrors:
    values = path.child("values")
    match requirement.operator:
        case "In" | "NotIn":
            if not requirement.values:
                yield required(values, "must be specified when `operator` is 'In' or 'NotIn'")
        case "Exists" | "DoesNotExist":
            if requirement.values:
                yield forbidden(values, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
        case "Gt" | "Lt":
            if len(requirement.values) != 1:
                yield required(values, "must be specified single value when `operator` is 'Lt' or 'Gt'")
        case _:
            yield invalid(path.child("operator"), requirement.operator, _NOT_AN_OPERATOR)
    yield from invalid_each(path.child("key"), requirement.key, formats.label_key(requirement.key))
    if strict:
        for position, value in enumerate(requirement.values):
            yield from invalid_each(values.at(position), value, formats.label_value(value))


def _node_fields(requirement: NodeSelectorRequirement, path: FieldPath) -> FieldErrors:
    if requirement.operator not in {"In", "NotIn"}:
        yield invalid(path.child("operator"), requirement.operator, _NOT_AN_OPERATOR)
    elif len(requirement.values) != 1:
        message = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        yield required(path.child("values"), message)
    if requirement.key != "metadata.name":
        yield invalid(path.child("key"), requirement.key, "not a valid field selector key")
        return
    for position, value in enumerate(requirement.values):
        yield from invalid_each(path.child("values").at(position), value, formats.dns_subdomain(value))


def _pod_affinity(affinity: PodAffinity | PodAntiAffinity | None, path: FieldPath) -> FieldErrors:
    if affinity is None:
        return
    for position, term in enumerate(affinity.required_during_scheduling_ignored_during_execution):
        yield from _pod_term(term, path.child(REQUIRED_TERMS).at(position))
    for position, weighted in enumerate(affinity.preferred_during_scheduling_ignored_during_execution):
        here = path.child(PREFERRED_TERMS).at(position)
        yield from _weight(weighted.weight, here.child("weight"))
        yield from _pod_term(weighted.pod_affinity_term, here.child("podAffinityTerm"))


def _pod_term(term: PodAffinityTerm, path: FieldPath) -> FieldErrors:
    yield from validate_label_selector(term.label_selector, path.child("labelSelector"))
    yield from validate_label_selector(term.namespace_selector, path.child("namespaceSelector"))
    for name in term.namespaces:
        yield from invalid_each(path.child("namespace"), name, formats.dns_label(name))
    yield from _term_label_keys(term, path)
    if not term.topology_key:
        yield required(path.child("topologyKey"), "can not be empty")
    yield from invalid_each(path.child("topologyKey"), term.topology_key, formats.label_key(term.topology_key))


def _term_label_keys(term: PodAffinityTerm, path: FieldPath) -> FieldErrors:
    for wire_name, keys in (("matchLabelKeys", term.match_label_keys), ("mismatchLabelKeys", term.mismatch_label_keys)):
        here = path.child(wire_name)
        if keys and term.label_selector is None:
            yield forbidden(here, _NO_SELECTOR)
        elif keys:
            for position, key in enumerate(keys):
                yield from invalid_each(here.at(position), key, formats.label_key(key))
    if term.label_selector is not None and term.match_label_keys:
        # The strategy has merged the keys into the selector, so a key that is there twice was also written by hand.
        seen = set(term.label_selector.match_labels)
        first = {key: position for position, key in reversed(list(enumerate(term.match_label_keys)))}
        for requirement in term.label_selector.match_expressions:
            if requirement.key in first and requirement.key in seen:
                yield invalid(path.at(first[requirement.key]), requirement.key, _IN_BOTH)
            seen.add(requirement.key)
    mismatched = frozenset(term.mismatch_label_keys)
    for position, key in enumerate(term.match_label_keys):
        if key in mismatched:
            message = "exists in both matchLabelKeys and mismatchLabelKeys"
            yield invalid(path.child("matchLabelKeys").at(position), key, message)


def _spread_label_keys(constraint: TopologySpreadConstraint, path: FieldPath) -> FieldErrors:
    if not constraint.match_label_keys:
        return
    if constraint.label_selector is None:
        yield forbidden(path, _NO_SELECTOR)
    written = set(_selector_keys(constraint.label_selector))
    for position, key in enumerate(constraint.match_label_keys):
        yield from invalid_each(path.at(position), key, formats.label_key(key))
        if key in written:
            yield invalid(path.at(position), key, _IN_BOTH)


def _selector_keys(selector: LabelSelector | None) -> Iterable[str]:
    if selector is None:
        return ()
    return (*selector.match_labels, *(requirement.key for requirement in selector.match_expressions))


def _min_domains(constraint: TopologySpreadConstraint, path: FieldPath) -> FieldErrors:
    count = constraint.min_domains
    if count is None:
        return
    if count <= 0:
        yield invalid(path, count, _POSITIVE)
    if constraint.when_unsatisfiable != "DoNotSchedule":
        allowed = "can only use minDomains if whenUnsatisfiable=DoNotSchedule"
        yield invalid(path, count, f"{allowed}, not {constraint.when_unsatisfiable}")


def _weight(weight: int, path: FieldPath) -> FieldErrors:
    if not 1 <= weight <= 100:
        yield invalid(path, weight, "must be in the range 1-100")


def _compared_number(text: str, path: FieldPath) -> FieldErrors:
    """Both rules of upstream, each with its own error: a canonical decimal number, and one of 64 bits."""
    yield from invalid_each(path, text, formats.decimal_integer(text))
    if parse_int64(text) is None:
        why = "value out of range" if is_integer(text) else "invalid syntax"
        yield invalid(path, text, f"strconv.ParseInt: parsing {go_quote(text)}: {why}")


def _toleration(toleration: Toleration, path: FieldPath, *, comparisons: bool) -> FieldErrors:
    operator = path.child("operator")
    if toleration.key:
        yield from invalid_each(path.child("key"), toleration.key, formats.label_key(toleration.key))
    elif toleration.operator != "Exists":
        message = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        yield invalid(operator, toleration.operator, message)
    if toleration.toleration_seconds is not None and toleration.effect != "NoExecute":
        message = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        yield invalid(path.child("effect"), toleration.effect, message)
    match toleration.operator:
        case "Equal" | "":
            if messages := formats.label_value(toleration.value):
                yield invalid(operator, toleration.value, ";".join(messages))
        case "Exists":
            if toleration.value:
                yield invalid(operator, toleration.value, "value must be empty when `operator` is 'Exists'")
        case "Lt" | "Gt":
            if comparisons:
                yield from _compared_number(toleration.value, path.child("value"))
            else:
                yield not_supported(operator, toleration.operator, (*_TOLERATION_OPERATORS, "Lt", "Gt"))
        case _:
            yield not_supported(operator, toleration.operator, _TOLERATION_OPERATORS)
    if toleration.effect and toleration.effect not in _EFFECTS:
        yield not_supported(path.child("effect"), toleration.effect, _EFFECTS)
