"""The calls of the two CRI services, as the client and the fake servers use them."""

from klet.wire import cri_v1_pb2 as pb
from klet.wire.methods import method_of

RUNTIME_SERVICE = pb.DESCRIPTOR.services_by_name["RuntimeService"]
IMAGE_SERVICE = pb.DESCRIPTOR.services_by_name["ImageService"]

VERSION = method_of(RUNTIME_SERVICE, "Version", pb.VersionRequest, pb.VersionResponse)
RUN_POD_SANDBOX = method_of(RUNTIME_SERVICE, "RunPodSandbox", pb.RunPodSandboxRequest, pb.RunPodSandboxResponse)
STOP_POD_SANDBOX = method_of(RUNTIME_SERVICE, "StopPodSandbox", pb.StopPodSandboxRequest, pb.StopPodSandboxResponse)
REMOVE_POD_SANDBOX = method_of(
    RUNTIME_SERVICE, "RemovePodSandbox", pb.RemovePodSandboxRequest, pb.RemovePodSandboxResponse
)
POD_SANDBOX_STATUS = method_of(
    RUNTIME_SERVICE, "PodSandboxStatus", pb.PodSandboxStatusRequest, pb.PodSandboxStatusResponse
)
LIST_POD_SANDBOX = method_of(RUNTIME_SERVICE, "ListPodSandbox", pb.ListPodSandboxRequest, pb.ListPodSandboxResponse)
CREATE_CONTAINER = method_of(RUNTIME_SERVICE, "CreateContainer", pb.CreateContainerRequest, pb.CreateContainerResponse)
START_CONTAINER = method_of(RUNTIME_SERVICE, "StartContainer", pb.StartContainerRequest, pb.StartContainerResponse)
STOP_CONTAINER = method_of(RUNTIME_SERVICE, "StopContainer", pb.StopContainerRequest, pb.StopContainerResponse)
REMOVE_CONTAINER = method_of(RUNTIME_SERVICE, "RemoveContainer", pb.RemoveContainerRequest, pb.RemoveContainerResponse)
LIST_CONTAINERS = method_of(RUNTIME_SERVICE, "ListContainers", pb.ListContainersRequest, pb.ListContainersResponse)
CONTAINER_STATUS = method_of(RUNTIME_SERVICE, "ContainerStatus", pb.ContainerStatusRequest, pb.ContainerStatusResponse)
UPDATE_CONTAINER_RESOURCES = method_of(
    RUNTIME_SERVICE, "UpdateContainerResources", pb.UpdateContainerResourcesRequest, pb.UpdateContainerResourcesResponse
)
REOPEN_CONTAINER_LOG = method_of(
    RUNTIME_SERVICE, "ReopenContainerLog", pb.ReopenContainerLogRequest, pb.ReopenContainerLogResponse
)
EXEC_SYNC = method_of(RUNTIME_SERVICE, "ExecSync", pb.ExecSyncRequest, pb.ExecSyncResponse)
EXEC = method_of(RUNTIME_SERVICE, "Exec", pb.ExecRequest, pb.ExecResponse)
ATTACH = method_of(RUNTIME_SERVICE, "Attach", pb.AttachRequest, pb.AttachResponse)
PORT_FORWARD = method_of(RUNTIME_SERVICE, "PortForward", pb.PortForwardRequest, pb.PortForwardResponse)
CONTAINER_STATS = method_of(RUNTIME_SERVICE, "ContainerStats", pb.ContainerStatsRequest, pb.ContainerStatsResponse)
LIST_CONTAINER_STATS = method_of(
    RUNTIME_SERVICE, "ListContainerStats", pb.ListContainerStatsRequest, pb.ListContainerStatsResponse
)
POD_SANDBOX_STATS = method_of(RUNTIME_SERVICE, "PodSandboxStats", pb.PodSandboxStatsRequest, pb.PodSandboxStatsResponse)
LIST_POD_SANDBOX_STATS = method_of(
    RUNTIME_SERVICE, "ListPodSandboxStats", pb.ListPodSandboxStatsRequest, pb.ListPodSandboxStatsResponse
)
UPDATE_RUNTIME_CONFIG = method_of(
    RUNTIME_SERVICE, "UpdateRuntimeConfig", pb.UpdateRuntimeConfigRequest, pb.UpdateRuntimeConfigResponse
)
STATUS = method_of(RUNTIME_SERVICE, "Status", pb.StatusRequest, pb.StatusResponse)
CHECKPOINT_CONTAINER = method_of(
    RUNTIME_SERVICE, "CheckpointContainer", pb.CheckpointContainerRequest, pb.CheckpointContainerResponse
)
GET_CONTAINER_EVENTS = method_of(RUNTIME_SERVICE, "GetContainerEvents", pb.GetEventsRequest, pb.ContainerEventResponse)
LIST_METRIC_DESCRIPTORS = method_of(
    RUNTIME_SERVICE, "ListMetricDescriptors", pb.ListMetricDescriptorsRequest, pb.ListMetricDescriptorsResponse
)
LIST_POD_SANDBOX_METRICS = method_of(
    RUNTIME_SERVICE, "ListPodSandboxMetrics", pb.ListPodSandboxMetricsRequest, pb.ListPodSandboxMetricsResponse
)
RUNTIME_CONFIG = method_of(RUNTIME_SERVICE, "RuntimeConfig", pb.RuntimeConfigRequest, pb.RuntimeConfigResponse)
UPDATE_POD_SANDBOX_RESOURCES = method_of(
    RUNTIME_SERVICE,
    "UpdatePodSandboxResources",
    pb.UpdatePodSandboxResourcesRequest,
    pb.UpdatePodSandboxResourcesResponse,
)

LIST_IMAGES = method_of(IMAGE_SERVICE, "ListImages", pb.ListImagesRequest, pb.ListImagesResponse)
IMAGE_STATUS = method_of(IMAGE_SERVICE, "ImageStatus", pb.ImageStatusRequest, pb.ImageStatusResponse)
PULL_IMAGE = method_of(IMAGE_SERVICE, "PullImage", pb.PullImageRequest, pb.PullImageResponse)
REMOVE_IMAGE = method_of(IMAGE_SERVICE, "RemoveImage", pb.RemoveImageRequest, pb.RemoveImageResponse)
IMAGE_FS_INFO = method_of(IMAGE_SERVICE, "ImageFsInfo", pb.ImageFsInfoRequest, pb.ImageFsInfoResponse)
