"""The schema of the agent's own API for `klet fit`."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from msgspec.structs import fields

from klet.api.klet_v1 import ExplainedPod, encode
from klet.api.klet_v1_fit import FitAnswer, FitPlacement, FitReason, FitResource, FitVictim
from klet.testing.strict import decode_strictly

TEXT = (Path(__file__).parents[3] / "docs" / "resources.md").read_text()
DOCUMENTED = (FitAnswer, FitPlacement, FitReason, FitResource, FitVictim)


@pytest.mark.parametrize("cls", DOCUMENTED)
def test_every_field_is_documented(cls):
    assert [each.encode_name for each in fields(cls) if f"`{each.encode_name}`" not in TEXT] == []


def test_what_is_written_is_read():
    pod = ExplainedPod(namespace="default", name="web", uid="u")
    answer = FitAnswer(
        pod=pod,
        now=datetime(2030, 1, 1, tzinfo=UTC),
        source="api",
        fits=False,
        reasons=(FitReason(reason="OutOfcpu", message="m", why="w"),),
        victims=(FitVictim(namespace="default", name="other", uid="v", qos_class="Burstable"),),
        replaces=pod,
        resources=(FitResource(resource="cpu", requested="1", used="2", allocatable="2", short=True),),
        placement=(FitPlacement(container="main", cpus=(0, 1), numa_nodes=(0,)),),
    )
    assert decode_strictly(FitAnswer, encode(answer)) == answer
