"""The registry with tokens that tests pull from lets in only who logs in to its token server."""

import pytest

from klet.cri.errors import CriError
from klet.testing.registry.tokens import PASSWORD, USER
from klet.wire import cri_v1_pb2 as pb

pytestmark = [pytest.mark.root, pytest.mark.containerd]


async def test_a_token_is_for_who_logs_in(cri, push, token_registry, tokens):
    name = await push(token_registry)
    for auth in (None, pb.AuthConfig(username=USER, password="wrong-pass")):
        with pytest.raises(CriError):
            await cri.pull_image(pb.PullImageRequest(image=pb.ImageSpec(image=name), auth=auth))
    assert tokens.refused
    assert not tokens.issued
    right = pb.AuthConfig(username=USER, password=PASSWORD)
    assert (await cri.pull_image(pb.PullImageRequest(image=pb.ImageSpec(image=name), auth=right))).image_ref
    assert (USER, ("repository:team/app:pull",)) in tokens.issued
