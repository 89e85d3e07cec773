"""Builds what decides which pods the node admits."""

from msgspec.structs import replace

from klet.admission.chain import AdmissionChain
from klet.admission.checks import AppArmorCheck, FeatureCheck, SysctlCheck
from klet.admission.declared_features import DeclaredFeatureCheck
from klet.admission.loads import PodLoads
from klet.admission.predicate_check import PredicateCheck
from klet.admission.predicates import PredicateRules
from klet.api.node import NodeStatus
from klet.api.pod import Pod, PodStatus
from klet.app.boards import Boards
from klet.app.ports import Ports
from klet.app.settings import AgentSettings
from klet.model.pods import uid_of
from klet.model.verdicts import AdmitHandler
from klet.node.cached_node import CachedNode
from klet.node.initial_node import build_initial_node
from klet.node.runtime_state import RuntimeState


def build_admission(
    ports: Ports,
    settings: AgentSettings,
    boards: Boards,
    *,
    runtime: RuntimeState,
    managers: tuple[AdmitHandler, ...],
) -> AdmissionChain:
    """Build what is asked about every new pod. `managers` give it its resources."""
    after: tuple[AdmitHandler, ...] = (
        AppArmorCheck(is_enabled=ports.machine.info().has_app_armor),
        FeatureCheck(pod_level_resources=settings.has_pod_level_resources),
    )
    if settings.declared_features is not None:
        after = (*after, DeclaredFeatureCheck(declared=settings.declared_features))
    return AdmissionChain(
        before=(SysctlCheck(allowed=settings.allowed_sysctls),),
        managers=managers,
        predicates=_build_predicates(ports, settings, boards, runtime=runtime),
        after=after,
    )


def _build_predicates(
    ports: Ports, settings: AgentSettings, boards: Boards, *, runtime: RuntimeState
) -> PredicateCheck:
    def find_rules() -> PredicateRules:
        return PredicateRules(
            has_groups_policy=bool(runtime.report.supplemental_groups_policy),
            compares_taints=settings.features.taint_comparisons,
            own_ports=settings.own_ports,
        )

    def find_status(pod: Pod) -> PodStatus:
        return boards.statuses.get(uid_of(pod)) or pod.status

    initial = build_initial_node(settings.node)
    expected = NodeStatus(allocatable=ports.containers.resources.allocatable())
    node = CachedNode(
        find=ports.volumes.find_node, fetcher=ports.volumes.node, initial=replace(initial, status=expected)
    )
    return PredicateCheck(
        node=node,
        rules=find_rules,
        loads=PodLoads(allocations=boards.allocations, status_of=find_status),
        allocations=boards.allocations,
    )
