"""Checks of the runtime's answers; each raises BadAnswer when something required is missing."""

from klet.cri.errors import BadAnswer
from klet.wire import cri_v1_pb2 as pb


def check_version(answer: pb.VersionResponse) -> None:
    fields = {
        "Version": answer.version,
        "RuntimeName": answer.runtime_name,
        "RuntimeVersion": answer.runtime_version,
        "RuntimeApiVersion": answer.runtime_api_version,
    }
    if missing := [name for name, value in fields.items() if not value]:
        message = f"not all fields are set in VersionResponse (missing {', '.join(missing)})"
        raise BadAnswer(message)


def check_sandbox_id(answer: pb.RunPodSandboxResponse, metadata: pb.PodSandboxMetadata) -> None:
    if not answer.pod_sandbox_id:
        message = f'PodSandboxId is not set for sandbox "{metadata.namespace}/{metadata.name}" (uid {metadata.uid})'
        raise BadAnswer(message)


def check_container_id(answer: pb.CreateContainerResponse, metadata: pb.ContainerMetadata) -> None:
    if not answer.container_id:
        message = f'ContainerId is not set for container "{metadata.name}" (attempt {metadata.attempt})'
        raise BadAnswer(message)


def check_pulled(answer: pb.PullImageResponse, image: pb.ImageSpec) -> None:
    if not answer.image_ref:
        message = f'imageRef of image "{image.image}" is not set'
        raise BadAnswer(message)


def check_image_status(answer: pb.ImageStatusResponse, image: pb.ImageSpec) -> None:
    """Accept an answer without an image: it means that the image does not exist."""
    if answer.HasField("image") and not (answer.image.id and answer.image.size):
        message = f'Id or size of image "{image.image}" is not set'
        raise BadAnswer(message)


def check_sandbox_status(answer: pb.PodSandboxStatusResponse) -> None:
    if not answer.HasField("status"):
        raise BadAnswer("pod sandbox status is nil")
    status = answer.status
    metadata = status.metadata
    _require(Id=status.id, Metadata=status.HasField("metadata"))
    if not (metadata.name and metadata.namespace and metadata.uid):
        raise BadAnswer("metadata.Name, metadata.Namespace or metadata.Uid is not in metadata of status")
    _require(CreatedAt=status.created_at)


def check_container_status(answer: pb.ContainerStatusResponse) -> None:
    if not answer.HasField("status"):
        raise BadAnswer("container status is nil")
    status = answer.status
    _require(Id=status.id, Metadata=status.HasField("metadata"))
    if not status.metadata.name:
        raise BadAnswer("metadata.Name is not in metadata of status")
    _require(CreatedAt=status.created_at, Image=status.image.image, ImageRef=status.image_ref)


def check_runtime_status(answer: pb.StatusResponse) -> None:
    """Check that both standard conditions are reported."""
    if not answer.HasField("status") or len(answer.status.conditions) < _REQUIRED_CONDITIONS:
        raise BadAnswer("RuntimeReady or NetworkReady condition are not set")


def check_url(url: str) -> None:
    """Check the address of a streaming server, with which Exec, Attach and PortForward answer."""
    if not url:
        raise BadAnswer("URL is not set")


_REQUIRED_CONDITIONS = 2


def _require(**fields: object) -> None:
    for name, value in fields.items():
        if not value:
            message = f"status.{name} is not set"
            raise BadAnswer(message)
