"""Leases (coordination.k8s.io/v1)."""

from klet.api.base import ApiObject, Int32
from klet.api.meta import ObjectMeta
from klet.api.times import MicroTime


class LeaseSpec(ApiObject, frozen=True, kw_only=True):
    """Who holds the lease, since when and how long."""

    holder_identity: str | None = None
    lease_duration_seconds: Int32 | None = None
    acquire_time: MicroTime | None = None
    renew_time: MicroTime | None = None
    lease_transitions: Int32 | None = None
    strategy: str | None = None
    preferred_holder: str | None = None


class Lease(ApiObject, frozen=True, kw_only=True):
    """A claim renewed by its holder; the kubelet keeps one for its node."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: LeaseSpec = LeaseSpec()
