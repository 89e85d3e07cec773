"""Which ResourceClaims a pod and its containers use, and what is done about them (DRA manager).

klet does not prepare claims yet. A pod with claims would run without its devices, so it waits, as with upstream when
the driver of a claim is missing: its sandbox is not made, and no container of a pod that already runs is started again.
"""

from collections.abc import Iterable
from typing import Final, Protocol

from msgspec import Struct

from klet.api.container import ResourceRequirements
from klet.api.pod import Pod, PodResourceClaim
from klet.runtime.errors import RuntimeFailure

_NOT_BUILT: Final = "klet does not prepare ResourceClaims (DRA) yet"


class ClaimsNotPrepared(RuntimeFailure):
    """A pod cannot have the devices that it claims."""


class ClaimPreparer(Protocol):
    """Prepares the devices that pods claim."""

    async def prepare(self, pod: Pod) -> None:
        """Prepare all claims of a pod whose sandbox is about to be made; raises ClaimsNotPrepared."""
        ...


class NamedClaim(Struct, frozen=True):
    """A claim of a pod, and the name of its ResourceClaim: None if the pod needs none."""

    claim: str
    name: str | None


class NoClaims:
    """A node that prepares no claims: only pods without any can be started."""

    async def prepare(self, pod: Pod) -> None:
        refuse_claims(each.name for each in find_claims(pod) if each.name is not None)


def find_claims(pod: Pod) -> tuple[NamedClaim, ...]:
    """Return the claims of a pod; raises ClaimsNotPrepared if one has not been created yet.

    The last one may stand for extended resources of which the scheduler has made a claim.
    """
    claims = tuple(NamedClaim(claim.name, _name_of(pod, claim)) for claim in pod.spec.resource_claims)
    extended = pod.status.extended_resource_claim_status
    return claims if extended is None else (*claims, NamedClaim("", extended.resource_claim_name))


def find_container_claims(pod: Pod, container: str, given: ResourceRequirements) -> tuple[str, ...]:
    """Return the names of the ResourceClaims that one container uses."""
    used = {claim.name for claim in given.claims}
    extended = pod.status.extended_resource_claim_status
    if extended is not None and any(each.container_name == container for each in extended.request_mappings):
        used.add("")
    return tuple(each.name for each in find_claims(pod) if each.claim in used and each.name is not None) if used else ()


def refuse_claims(names: Iterable[str]) -> None:
    """Raise ClaimsNotPrepared if there are any."""
    if shown := ", ".join(names):
        raise ClaimsNotPrepared(f"ResourceClaim {shown}: {_NOT_BUILT}")


def _name_of(pod: Pod, claim: PodResourceClaim) -> str | None:
    if claim.resource_claim_name is not None:
        return claim.resource_claim_name
    where = f'pod "{pod.metadata.namespace}/{pod.metadata.name}"'
    if claim.resource_claim_template_name is None:
        what = "none of the supported fields are set"
        raise ClaimsNotPrepared(f'{where}, spec.resourceClaim "{claim.name}": {what}')
    for made in pod.status.resource_claim_statuses:
        if made.name == claim.name:
            return made.resource_claim_name
    raise ClaimsNotPrepared(f"{where}: ResourceClaim not created yet")
