"""Whether a node suits a pod or a volume (upstream: component-helpers' nodeaffinity)."""

from collections.abc import Mapping

from klet.api.placement import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from klet.api.pod import PodSpec
from klet.api.selectors import Operator, SelectorError, checked_requirement, parse_int64


def suits_pod(spec: PodSpec, *, node_name: str, labels: Mapping[str, str]) -> bool:
    """Return whether a node has all labels of the pod's nodeSelector and matches its required node affinity."""
    if any(labels.get(key) != value for key, value in spec.node_selector.items()):
        return False
    affinity = spec.affinity and spec.affinity.node_affinity
    required = affinity and affinity.required_during_scheduling_ignored_during_execution
    return not required or matches_node_selector(required, node_name=node_name, labels=labels)


def matches_node_selector(selector: NodeSelector, *, node_name: str, labels: Mapping[str, str]) -> bool:
    """Return whether one of the terms matches; a selector without terms matches no node."""
    return any(matches_term(term, node_name=node_name, labels=labels) for term in selector.node_selector_terms)


def matches_term(term: NodeSelectorTerm, *, node_name: str, labels: Mapping[str, str]) -> bool:
    """Return whether all requirements of a term hold; an empty or a malformed term matches no node."""
    if not term.match_expressions and not term.match_fields:
        return False
    return all(_matches_label(each, labels) for each in term.match_expressions) and all(
        _matches_field(each, {"metadata.name": node_name}) for each in term.match_fields
    )


_OPERATORS: Mapping[str, Operator] = {
    "In": Operator.IN,
    "NotIn": Operator.NOT_IN,
    "Exists": Operator.EXISTS,
    "DoesNotExist": Operator.DOES_NOT_EXIST,
    "Gt": Operator.GREATER,
    "Lt": Operator.LESS,
}


def _matches_label(requirement: NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
    operator = _OPERATORS.get(requirement.operator)
    if operator is None or not _has_fitting_values(operator, requirement.values):
        return False
    try:
        return checked_requirement(requirement.key, operator, requirement.values).matches(labels)
    except SelectorError:
        return False  # such a label cannot be


def _has_fitting_values(operator: Operator, values: tuple[str, ...]) -> bool:
    match operator:
        case Operator.IN | Operator.NOT_IN:
            return bool(values)
        case Operator.EXISTS | Operator.DOES_NOT_EXIST:
            return not values
        case _:
            return len(values) == 1 and parse_int64(values[0]) is not None


def _matches_field(requirement: NodeSelectorRequirement, fields: Mapping[str, str]) -> bool:
    """Match one field; fields know only In and NotIn with exactly one value."""
    if len(requirement.values) != 1:
        return False
    equal = fields.get(requirement.key, "") == requirement.values[0]
    match requirement.operator:
        case "In":
            return equal
        case "NotIn":
            return not equal
        case _:
            return False
