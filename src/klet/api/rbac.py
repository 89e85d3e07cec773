"""Roles and their bindings (rbac.authorization.k8s.io/v1)."""

from msgspec import field

from klet.api.base import ApiObject, required
from klet.api.meta import LabelSelector, ObjectMeta


class AggregationRule(ApiObject, frozen=True, kw_only=True):
    cluster_role_selectors: tuple[LabelSelector, ...] = ()


class PolicyRule(ApiObject, frozen=True, kw_only=True):
    """Verbs on resources."""

    verbs: tuple[str, ...] = required(tuple)
    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()
    non_resource_urls: tuple[str, ...] = field(name="nonResourceURLs", default=())


class ClusterRole(ApiObject, frozen=True, kw_only=True):
    """Permissions everywhere."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    rules: tuple[PolicyRule, ...] = ()
    aggregation_rule: AggregationRule | None = None


class RoleRef(ApiObject, frozen=True, kw_only=True):
    api_group: str = required(str)
    kind: str = required(str)
    name: str = required(str)


class Subject(ApiObject, frozen=True, kw_only=True):
    """Who is bound to a role."""

    kind: str = required(str)
    api_group: str = ""
    name: str = required(str)
    namespace: str = ""


class ClusterRoleBinding(ApiObject, frozen=True, kw_only=True):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    subjects: tuple[Subject, ...] = ()
    role_ref: RoleRef = RoleRef()


class Role(ApiObject, frozen=True, kw_only=True):
    """Permissions in one namespace."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    rules: tuple[PolicyRule, ...] = ()


class RoleBinding(ApiObject, frozen=True, kw_only=True):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    subjects: tuple[Subject, ...] = ()
    role_ref: RoleRef = RoleRef()
