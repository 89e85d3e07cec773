"""Access reviews (authorization.k8s.io/v1)."""

from collections.abc import Mapping

from msgspec import field

from klet.api.base import ApiObject, required
from klet.api.meta import FieldSelectorRequirement, LabelSelectorRequirement, ObjectMeta


class FieldSelectorAttributes(ApiObject, frozen=True, kw_only=True):
    raw_selector: str = ""
    requirements: tuple[FieldSelectorRequirement, ...] = ()


class LabelSelectorAttributes(ApiObject, frozen=True, kw_only=True):
    raw_selector: str = ""
    requirements: tuple[LabelSelectorRequirement, ...] = ()


class NonResourceAttributes(ApiObject, frozen=True, kw_only=True):
    path: str = ""
    verb: str = ""


class NonResourceRule(ApiObject, frozen=True, kw_only=True):
    verbs: tuple[str, ...] = required(tuple)
    non_resource_urls: tuple[str, ...] = field(name="nonResourceURLs", default=())


class ResourceAttributes(ApiObject, frozen=True, kw_only=True):
    namespace: str = ""
    verb: str = ""
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    name: str = ""
    field_selector: FieldSelectorAttributes | None = None
    label_selector: LabelSelectorAttributes | None = None


class ResourceRule(ApiObject, frozen=True, kw_only=True):
    verbs: tuple[str, ...] = required(tuple)
    api_groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    resource_names: tuple[str, ...] = ()


class SelfSubjectAccessReviewSpec(ApiObject, frozen=True, kw_only=True):
    resource_attributes: ResourceAttributes | None = None
    non_resource_attributes: NonResourceAttributes | None = None


class SubjectAccessReviewStatus(ApiObject, frozen=True, kw_only=True):
    allowed: bool = required(bool)
    denied: bool = False
    reason: str = ""
    evaluation_error: str = ""


class SelfSubjectAccessReview(ApiObject, frozen=True, kw_only=True):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: SelfSubjectAccessReviewSpec = SelfSubjectAccessReviewSpec()
    status: SubjectAccessReviewStatus = SubjectAccessReviewStatus()


class SelfSubjectRulesReviewSpec(ApiObject, frozen=True, kw_only=True):
    namespace: str = ""


class SubjectRulesReviewStatus(ApiObject, frozen=True, kw_only=True):
    resource_rules: tuple[ResourceRule, ...] = required(tuple)
    non_resource_rules: tuple[NonResourceRule, ...] = required(tuple)
    incomplete: bool = required(bool)
    evaluation_error: str = ""


class SelfSubjectRulesReview(ApiObject, frozen=True, kw_only=True):
    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: SelfSubjectRulesReviewSpec = SelfSubjectRulesReviewSpec()
    status: SubjectRulesReviewStatus = SubjectRulesReviewStatus()


class SubjectAccessReviewSpec(ApiObject, frozen=True, kw_only=True):
    resource_attributes: ResourceAttributes | None = None
    non_resource_attributes: NonResourceAttributes | None = None
    user: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}
    uid: str = ""


class SubjectAccessReview(ApiObject, frozen=True, kw_only=True):
    """Asks whether someone may do something."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: SubjectAccessReviewSpec = SubjectAccessReviewSpec()
    status: SubjectAccessReviewStatus = SubjectAccessReviewStatus()
