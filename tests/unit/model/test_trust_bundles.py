"""Which trust bundles a volume means."""

import pytest

from klet.api.certificates import ClusterTrustBundle, ClusterTrustBundleSpec
from klet.api.meta import LabelSelector, ObjectMeta
from klet.model.trust_bundles import choose_bundles


def bundle(name: str, signer: str = "s", **labels: str) -> ClusterTrustBundle:
    spec = ClusterTrustBundleSpec(signer_name=signer)
    return ClusterTrustBundle(metadata=ObjectMeta(name=name, labels=labels), spec=spec)


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        pytest.param(None, [], id="no selector takes none"),
        pytest.param(LabelSelector(), ["a", "b"], id="an empty one takes all of the signer"),
        pytest.param(LabelSelector(match_labels={"live": "yes"}), ["b"], id="by labels"),
    ],
)
def test_choose(selector, expected):
    bundles = [bundle("a"), bundle("b", live="yes"), bundle("c", signer="other", live="yes")]
    assert [each.metadata.name for each in choose_bundles(bundles, signer="s", selector=selector)] == expected
