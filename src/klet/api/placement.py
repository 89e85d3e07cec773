"""Where a pod may run: taints, tolerations, affinity, spread (core/v1), priority classes (scheduling.k8s.io/v1)."""

from klet.api.base import ApiObject, Int32, Int64, required
from klet.api.meta import LabelSelector, ObjectMeta
from klet.api.times import Time


class Taint(ApiObject, frozen=True, kw_only=True):
    """Keeps pods off a node unless they tolerate it."""

    key: str = required(str)
    value: str = ""
    effect: str = required(str)
    time_added: Time | None = None


class Toleration(ApiObject, frozen=True, kw_only=True):
    """A taint that the pod puts up with."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: Int64 | None = None


class NodeSelectorRequirement(ApiObject, frozen=True, kw_only=True):
    key: str = required(str)
    operator: str = required(str)
    values: tuple[str, ...] = ()


class NodeSelectorTerm(ApiObject, frozen=True, kw_only=True):
    """Requirements that must all match; an empty term matches nothing."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(ApiObject, frozen=True, kw_only=True):
    """Terms of which one must match."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = required(tuple)


class PreferredSchedulingTerm(ApiObject, frozen=True, kw_only=True):
    weight: Int32 = required(int)
    preference: NodeSelectorTerm = required(NodeSelectorTerm)


class NodeAffinity(ApiObject, frozen=True, kw_only=True):
    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    preferred_during_scheduling_ignored_during_execution: tuple[PreferredSchedulingTerm, ...] = ()


class PodAffinityTerm(ApiObject, frozen=True, kw_only=True):
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    topology_key: str = required(str)
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(ApiObject, frozen=True, kw_only=True):
    weight: Int32 = required(int)
    pod_affinity_term: PodAffinityTerm = required(PodAffinityTerm)


class PodAffinity(ApiObject, frozen=True, kw_only=True):
    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] = ()
    preferred_during_scheduling_ignored_during_execution: tuple[WeightedPodAffinityTerm, ...] = ()


class PodAntiAffinity(ApiObject, frozen=True, kw_only=True):
    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] = ()
    preferred_during_scheduling_ignored_during_execution: tuple[WeightedPodAffinityTerm, ...] = ()


class Affinity(ApiObject, frozen=True, kw_only=True):
    """Preferences and demands about nodes and neighbours."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAntiAffinity | None = None


class TopologySpreadConstraint(ApiObject, frozen=True, kw_only=True):
    max_skew: Int32 = required(int)
    topology_key: str = required(str)
    when_unsatisfiable: str = required(str)
    label_selector: LabelSelector | None = None
    min_domains: Int32 | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] = ()


class TopologySelectorLabelRequirement(ApiObject, frozen=True, kw_only=True):
    key: str = required(str)
    values: tuple[str, ...] = required(tuple)


class TopologySelectorTerm(ApiObject, frozen=True, kw_only=True):
    match_label_expressions: tuple[TopologySelectorLabelRequirement, ...] = ()


class PriorityClass(ApiObject, frozen=True, kw_only=True):
    """A named pod priority."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    value: Int32 = required(int)
    global_default: bool = False
    description: str = ""
    preemption_policy: str | None = None
