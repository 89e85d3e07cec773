"""Certificate signing requests, trust bundles and pod certificates (certificates.k8s.io).

Trust bundles look the same in v1alpha1 and v1beta1: one struct serves both.
"""

from collections.abc import Mapping

from klet.api.base import ApiObject, Int32, required
from klet.api.meta import Condition, ObjectMeta
from klet.api.times import Time


class CertificateSigningRequestSpec(ApiObject, frozen=True, kw_only=True):
    request: bytes = required(bytes)
    signer_name: str = required(str)
    expiration_seconds: Int32 | None = None
    usages: tuple[str, ...] = ()
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = {}


class CertificateSigningRequestCondition(ApiObject, frozen=True, kw_only=True):
    type: str = required(str)
    status: str = required(str)
    reason: str = ""
    message: str = ""
    last_update_time: Time | None = None
    last_transition_time: Time | None = None


class CertificateSigningRequestStatus(ApiObject, frozen=True, kw_only=True):
    conditions: tuple[CertificateSigningRequestCondition, ...] = ()
    certificate: bytes = b""


class CertificateSigningRequest(ApiObject, frozen=True, kw_only=True):
    """A certificate asked for and, once signed, given."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: CertificateSigningRequestSpec = CertificateSigningRequestSpec()
    status: CertificateSigningRequestStatus = CertificateSigningRequestStatus()


class ClusterTrustBundleSpec(ApiObject, frozen=True, kw_only=True):
    signer_name: str = ""
    trust_bundle: str = required(str)


class ClusterTrustBundle(ApiObject, frozen=True, kw_only=True):
    """Root certificates for everyone."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: ClusterTrustBundleSpec = ClusterTrustBundleSpec()


class PodCertificateRequestSpec(ApiObject, frozen=True, kw_only=True):
    max_expiration_seconds: Int32 | None = None
    node_name: str = required(str)
    node_uid: str = required(str, name="nodeUID")
    pkix_public_key: bytes = required(bytes)
    pod_name: str = required(str)
    pod_uid: str = required(str, name="podUID")
    proof_of_possession: bytes = required(bytes)
    service_account_name: str = required(str)
    service_account_uid: str = required(str, name="serviceAccountUID")
    signer_name: str = required(str)
    unverified_user_annotations: Mapping[str, str] = {}


class PodCertificateRequestStatus(ApiObject, frozen=True, kw_only=True):
    begin_refresh_at: Time | None = None
    certificate_chain: str = ""
    conditions: tuple[Condition, ...] = ()
    not_after: Time | None = None
    not_before: Time | None = None


class PodCertificateRequest(ApiObject, frozen=True, kw_only=True):
    """A certificate asked for on behalf of a pod."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = ObjectMeta()
    spec: PodCertificateRequestSpec = PodCertificateRequestSpec()
    status: PodCertificateRequestStatus = PodCertificateRequestStatus()
