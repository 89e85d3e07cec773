"""Which trust bundles of the cluster a volume means. Pure."""

from collections.abc import Iterable

from klet.api.certificates import ClusterTrustBundle
from klet.api.meta import LabelSelector
from klet.api.selectors import label_selector


def choose_bundles(
    bundles: Iterable[ClusterTrustBundle], *, signer: str, selector: LabelSelector | None
) -> list[ClusterTrustBundle]:
    """Return those of a signer that a selector takes; without a selector none."""
    chosen = label_selector(selector)
    return [each for each in bundles if each.spec.signer_name == signer and chosen.matches(each.metadata.labels)]
