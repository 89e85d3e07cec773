import pytest

from klet.cri.errors import Unimplemented
from klet.images.sandbox_image import parse_sandbox_image
from klet.wire import cri_v1_pb2 as pb


async def test_the_runtime_names_itself(bench):
    answer = await bench.client.version(pb.VersionRequest(version="v1"))
    assert answer.runtime_name == "containerd"
    assert answer.runtime_version.startswith("1.6.")
    assert answer.runtime_api_version == "v1"
    assert answer.version == "0.1.0"


async def test_runtime_and_network_are_ready(bench):
    answer = await bench.client.status(pb.StatusRequest())
    assert {condition.type: condition.status for condition in answer.status.conditions} == {
        "RuntimeReady": True,
        "NetworkReady": True,
    }
    assert not answer.info


async def test_a_verbose_status_has_the_configuration(bench):
    answer = await bench.client.status(pb.StatusRequest(verbose=True))
    assert "containerd" in answer.info["config"]
    assert "/pause:" in parse_sandbox_image(answer)


async def test_the_runtime_takes_a_pod_cidr(bench):
    config = pb.RuntimeConfig(network_config=pb.NetworkConfig(pod_cidr="10.9.0.0/24"))
    await bench.client.update_runtime_config(pb.UpdateRuntimeConfigRequest(runtime_config=config))


@pytest.mark.parametrize(
    ("call", "request_"),
    [
        ("runtime_config", pb.RuntimeConfigRequest()),
        ("checkpoint_container", pb.CheckpointContainerRequest()),
        ("list_metric_descriptors", pb.ListMetricDescriptorsRequest()),
        ("list_pod_sandbox_metrics", pb.ListPodSandboxMetricsRequest()),
        ("update_pod_sandbox_resources", pb.UpdatePodSandboxResourcesRequest()),
    ],
)
async def test_calls_that_containerd_1_6_does_not_have(bench, call, request_):
    with pytest.raises(Unimplemented):
        await getattr(bench.client, call)(request_)


async def test_the_cris_own_events_are_not_there_either(bench):
    with pytest.raises(Unimplemented):
        await anext(bench.client.get_container_events(pb.GetEventsRequest()))
