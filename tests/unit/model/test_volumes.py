"""Groups that a pod gets for its volumes."""

import pytest
from msgspec.structs import replace

from klet.api.security import PodSecurityContext
from klet.model.volumes import HostVolume, extra_groups, volume_gid
from klet.testing.builders import make_pod


@pytest.mark.parametrize(
    ("gids", "listed", "groups"),
    [
        pytest.param([], None, (), id="no volumes"),
        pytest.param([""], None, (), id="a volume without a group"),
        pytest.param(["5555"], None, (5555,), id="a pod without a security context"),
        pytest.param(["5555"], (), (5555,), id="a pod without groups of its own"),
        pytest.param(["5555"], (5555,), (), id="the pod lists it itself"),
        pytest.param(["5555", "777"], (777,), (5555,), id="two volumes, one of them listed"),
        pytest.param(["5555", "5555"], None, (5555,), id="two volumes of one group"),
        pytest.param(["invalid"], None, (), id="a word"),
        pytest.param(["1.5", " 7", "1_000", "0x10", "\u0663"], None, (), id="what only looks like a number"),
        pytest.param(["+7", "-1", "007"], None, (7, -1, 7), id="as Go reads numbers"),
        pytest.param(["9223372036854775807"], None, (9223372036854775807,), id="the largest"),
        pytest.param(["9223372036854775808", "9" * 5000], None, (), id="too large"),
    ],
)
def test_extra_groups(gids, listed, groups):
    pod = make_pod()
    context = PodSecurityContext(supplemental_groups=listed) if listed is not None else None
    pod = replace(pod, spec=replace(pod.spec, security_context=context))
    assert extra_groups(pod, [HostVolume("/v", gid=gid) for gid in gids]) == groups


@pytest.mark.parametrize(
    ("annotations", "gid"),
    [
        pytest.param({}, "", id="none"),
        pytest.param({"pv.beta.kubernetes.io/gid": "5555", "other": "1"}, "5555", id="the group"),
    ],
)
def test_the_group_of_a_persistent_volume(annotations, gid):
    assert volume_gid(annotations) == gid
