"""Certificates out of trust bundles."""

import random

import pytest

from klet.api.certificates import ClusterTrustBundle, ClusterTrustBundleSpec
from klet.api.meta import ObjectMeta
from klet.objectcache.trust_anchors import merge_anchors

ONE = "-----BEGIN CERTIFICATE-----\nb25l\n-----END CERTIFICATE-----\n"
TWO = "-----BEGIN CERTIFICATE-----\ndHdv\n-----END CERTIFICATE-----\n"
LONG = "-----BEGIN CERTIFICATE-----\n" + "QUFB" * 16 + "\nQUFB\n-----END CERTIFICATE-----\n"


def bundle(text: str = ONE, name: str = "b", signer: str = "s", **labels: str) -> ClusterTrustBundle:
    spec = ClusterTrustBundleSpec(signer_name=signer, trust_bundle=text)
    return ClusterTrustBundle(metadata=ObjectMeta(name=name, labels=labels), spec=spec)


def merged(*texts: str, seed: int = 1) -> str:
    return merge_anchors([bundle(text) for text in texts], randomness=random.Random(seed)).decode()


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        pytest.param([ONE], {ONE}, id="one"),
        pytest.param([ONE + TWO], {ONE, TWO}, id="two of one bundle"),
        pytest.param([ONE, TWO + ONE], {ONE, TWO}, id="each once"),
        pytest.param([f"a comment\n{ONE}another\n"], {ONE}, id="text between them is left out"),
        pytest.param([ONE.replace("b25l", "k: v\n\nb25l")], {ONE}, id="headers are left out"),
        pytest.param([ONE.replace("CERTIFICATE", "X509 CERTIFICATE")], {ONE}, id="whatever it is called"),
        pytest.param([ONE.replace("\n", "\r\n")], {ONE}, id="other line ends"),
        pytest.param([LONG.replace("\nQUFB\n", "QUFB\n")], {LONG}, id="lines are broken again"),
        pytest.param([ONE.replace("b25l", "b25"), TWO], {TWO}, id="a damaged one is left out"),
        pytest.param([], set(), id="none"),
    ],
)
def test_merge(texts, expected):
    found = merged(*texts)
    assert sorted(found.split("-----END CERTIFICATE-----\n")[:-1]) == sorted(
        each.removesuffix("-----END CERTIFICATE-----\n") for each in expected
    )


def test_no_order_can_be_relied_on():
    many = [ONE.replace("b25l", text) for text in ("AAAA", "BBBB", "CCCC", "DDDD", "EEEE")]
    assert len({merged(*many, seed=seed) for seed in range(8)}) > 1
