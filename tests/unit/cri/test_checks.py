import pytest

from klet.cri import checks
from klet.cri.errors import BadAnswer
from klet.wire import cri_v1_pb2 as pb

VERSION = pb.VersionResponse(version="0.1.0", runtime_name="r", runtime_version="1", runtime_api_version="v1")
SANDBOX_METADATA = pb.PodSandboxMetadata(name="p", namespace="n", uid="u")
SANDBOX = pb.PodSandboxStatus(id="s", metadata=SANDBOX_METADATA, created_at=1)
CONTAINER = pb.ContainerStatus(
    id="c", metadata=pb.ContainerMetadata(name="m"), created_at=1, image=pb.ImageSpec(image="i"), image_ref="r"
)
IMAGE = pb.ImageSpec(image="busybox")


def without(message, *fields):
    copy = type(message)()
    copy.CopyFrom(message)
    for field in fields:
        copy.ClearField(field)
    return copy


def sandbox(status):
    return checks.check_sandbox_status, pb.PodSandboxStatusResponse(status=status)


def container(status):
    return checks.check_container_status, pb.ContainerStatusResponse(status=status)


def runtime(*conditions):
    status = pb.RuntimeStatus(conditions=[pb.RuntimeCondition(type=name) for name in conditions])
    return checks.check_runtime_status, pb.StatusResponse(status=status)


@pytest.mark.parametrize(
    ("check", "arguments"),
    [
        pytest.param(checks.check_version, [VERSION], id="version"),
        pytest.param(checks.check_sandbox_status, [sandbox(SANDBOX)[1]], id="sandbox status"),
        pytest.param(checks.check_container_status, [container(CONTAINER)[1]], id="container status"),
        pytest.param(checks.check_runtime_status, [runtime("RuntimeReady", "NetworkReady")[1]], id="runtime status"),
        pytest.param(
            checks.check_sandbox_id, [pb.RunPodSandboxResponse(pod_sandbox_id="s"), SANDBOX_METADATA], id="sandbox id"
        ),
        pytest.param(
            checks.check_container_id,
            [pb.CreateContainerResponse(container_id="c"), CONTAINER.metadata],
            id="container id",
        ),
        pytest.param(checks.check_pulled, [pb.PullImageResponse(image_ref="r"), IMAGE], id="pulled image"),
        pytest.param(checks.check_image_status, [pb.ImageStatusResponse(), IMAGE], id="an image that is not there"),
        pytest.param(
            checks.check_image_status,
            [pb.ImageStatusResponse(image=pb.Image(id="i", size=1)), IMAGE],
            id="an image that is there",
        ),
        pytest.param(checks.check_url, ["http://127.0.0.1:1/exec/x"], id="a streaming address"),
    ],
)
def test_good_answers_pass(check, arguments):
    check(*arguments)


@pytest.mark.parametrize(
    ("check", "answer", "text"),
    [
        pytest.param(
            checks.check_version,
            without(VERSION, "runtime_name", "runtime_api_version"),
            "not all fields are set in VersionResponse (missing RuntimeName, RuntimeApiVersion)",
            id="version names all that is missing",
        ),
        pytest.param(checks.check_url, "", "URL is not set", id="no streaming address"),
        pytest.param(
            *runtime("RuntimeReady"), "RuntimeReady or NetworkReady condition are not set", id="one condition"
        ),
        pytest.param(
            checks.check_sandbox_status, pb.PodSandboxStatusResponse(), "pod sandbox status is nil", id="no sandbox"
        ),
        pytest.param(*sandbox(without(SANDBOX, "id")), "status.Id is not set", id="sandbox without id"),
        pytest.param(
            *sandbox(without(SANDBOX, "metadata")), "status.Metadata is not set", id="sandbox without metadata"
        ),
        pytest.param(
            *sandbox(pb.PodSandboxStatus(id="s", metadata=without(SANDBOX_METADATA, "uid"), created_at=1)),
            "metadata.Name, metadata.Namespace or metadata.Uid is not in metadata of status",
            id="sandbox without uid",
        ),
        pytest.param(
            *sandbox(without(SANDBOX, "created_at")), "status.CreatedAt is not set", id="sandbox without date"
        ),
        pytest.param(
            checks.check_container_status, pb.ContainerStatusResponse(), "container status is nil", id="no container"
        ),
        pytest.param(*container(without(CONTAINER, "id")), "status.Id is not set", id="container without id"),
        pytest.param(
            *container(pb.ContainerStatus(id="c", metadata=pb.ContainerMetadata(), created_at=1)),
            "metadata.Name is not in metadata of status",
            id="container without name",
        ),
        pytest.param(
            *container(without(CONTAINER, "created_at")), "status.CreatedAt is not set", id="container without date"
        ),
        pytest.param(*container(without(CONTAINER, "image")), "status.Image is not set", id="container without image"),
        pytest.param(
            *container(without(CONTAINER, "image_ref")), "status.ImageRef is not set", id="container without image ref"
        ),
    ],
)
def test_bad_answers_are_refused(check, answer, text):
    with pytest.raises(BadAnswer) as caught:
        check(answer)
    assert str(caught.value) == text


@pytest.mark.parametrize(
    ("check", "answer", "subject", "text"),
    [
        pytest.param(
            checks.check_sandbox_id,
            pb.RunPodSandboxResponse(),
            SANDBOX_METADATA,
            'PodSandboxId is not set for sandbox "n/p" (uid u)',
            id="sandbox",
        ),
        pytest.param(
            checks.check_container_id,
            pb.CreateContainerResponse(),
            pb.ContainerMetadata(name="m", attempt=2),
            'ContainerId is not set for container "m" (attempt 2)',
            id="container",
        ),
        pytest.param(
            checks.check_pulled, pb.PullImageResponse(), IMAGE, 'imageRef of image "busybox" is not set', id="pull"
        ),
        pytest.param(
            checks.check_image_status,
            pb.ImageStatusResponse(image=pb.Image(id="i")),
            IMAGE,
            'Id or size of image "busybox" is not set',
            id="image",
        ),
    ],
)
def test_missing_ids_name_what_was_asked_for(check, answer, subject, text):
    with pytest.raises(BadAnswer) as caught:
        check(answer, subject)
    assert str(caught.value) == text
