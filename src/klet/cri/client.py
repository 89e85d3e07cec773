"""The CRI over gRPC: deadlines for each call, checks of the answers, errors as CriError."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final

from klet.cri import calls, checks
from klet.cri.connection import CriTransport, open_connection
from klet.cri.errors import (
    Code,
    CriError,
    DeadlineExceeded,
    ExecTimeout,
    InvalidRuntime,
    ResourceExhausted,
    error_for,
)
from klet.model.tracing import Tracer
from klet.wire import cri_v1_pb2 as pb

_LONGEST_CHECKPOINT: Final = 365 * 24 * 3600
"""Seconds; gRPC takes a deadline of more than two centuries for one that has passed."""


@asynccontextmanager
async def connect(
    *, runtime_endpoint: str, image_endpoint: str = "", timeout: timedelta, tracer: Tracer | None = None
) -> AsyncIterator["CriClient"]:
    """Yield a client whose runtime has shown that it speaks CRI v1; without an image endpoint the runtime's is used."""
    async with open_connection(runtime_endpoint, tracer=tracer) as runtime:
        if image_endpoint in ("", runtime_endpoint):
            yield await _validated(CriClient(runtime=runtime, images=runtime, timeout=timeout))
        else:
            async with open_connection(image_endpoint, tracer=tracer) as images:
                yield await _validated(CriClient(runtime=runtime, images=images, timeout=timeout))


class CriClient:
    """Both services of the CRI. No call is repeated; `timeout` is the request timeout that deadlines derive from."""

    def __init__(self, *, runtime: CriTransport, images: CriTransport, timeout: timedelta) -> None:
        self._runtime = runtime
        self._images = images
        self._timeout = timeout

    @property
    def runtime(self) -> CriTransport:
        """The runtime's own connection, for services beyond the CRI on the same socket."""
        return self._runtime

    @property
    def images(self) -> CriTransport:
        return self._images

    async def version(self, request: pb.VersionRequest) -> pb.VersionResponse:
        answer = await self._runtime.call(calls.VERSION, request, timeout=self._timeout)
        checks.check_version(answer)
        return answer

    async def run_pod_sandbox(self, request: pb.RunPodSandboxRequest) -> pb.RunPodSandboxResponse:
        answer = await self._runtime.call(calls.RUN_POD_SANDBOX, request, timeout=2 * self._timeout)
        checks.check_sandbox_id(answer, request.config.metadata)
        return answer

    async def stop_pod_sandbox(self, request: pb.StopPodSandboxRequest) -> pb.StopPodSandboxResponse:
        return await self._runtime.call(calls.STOP_POD_SANDBOX, request, timeout=self._timeout)

    async def remove_pod_sandbox(self, request: pb.RemovePodSandboxRequest) -> pb.RemovePodSandboxResponse:
        return await self._runtime.call(calls.REMOVE_POD_SANDBOX, request, timeout=self._timeout)

    async def pod_sandbox_status(self, request: pb.PodSandboxStatusRequest) -> pb.PodSandboxStatusResponse:
        answer = await self._runtime.call(calls.POD_SANDBOX_STATUS, request, timeout=self._timeout)
        checks.check_sandbox_status(answer)
        return answer

    async def list_pod_sandbox(self, request: pb.ListPodSandboxRequest) -> pb.ListPodSandboxResponse:
        return await self._runtime.call(calls.LIST_POD_SANDBOX, request, timeout=self._timeout)

    async def create_container(self, request: pb.CreateContainerRequest) -> pb.CreateContainerResponse:
        answer = await self._runtime.call(calls.CREATE_CONTAINER, request, timeout=self._timeout)
        checks.check_container_id(answer, request.config.metadata)
        return answer

    async def start_container(self, request: pb.StartContainerRequest) -> pb.StartContainerResponse:
        return await self._runtime.call(calls.START_CONTAINER, request, timeout=self._timeout)

    async def stop_container(self, request: pb.StopContainerRequest) -> pb.StopContainerResponse:
        return await self._runtime.call(
            calls.STOP_CONTAINER, request, timeout=self._timeout + timedelta(seconds=request.timeout)
        )

    async def remove_container(self, request: pb.RemoveContainerRequest) -> pb.RemoveContainerResponse:
        return await self._runtime.call(calls.REMOVE_CONTAINER, request, timeout=self._timeout)

    async def list_containers(self, request: pb.ListContainersRequest) -> pb.ListContainersResponse:
        """List them sandbox by sandbox where one answer would be too large: a few pods with long hooks are enough."""
        try:
            return await self._runtime.call(calls.LIST_CONTAINERS, request, timeout=self._timeout)
        except ResourceExhausted:
            if request.filter.pod_sandbox_id or request.filter.id:
                raise
        answer = pb.ListContainersResponse()
        for sandbox in (await self.list_pod_sandbox(pb.ListPodSandboxRequest())).items:
            part = pb.ListContainersRequest()
            part.CopyFrom(request)
            part.filter.pod_sandbox_id = sandbox.id
            found = await self._runtime.call(calls.LIST_CONTAINERS, part, timeout=self._timeout)
            answer.containers.extend(found.containers)
        return answer

    async def container_status(self, request: pb.ContainerStatusRequest) -> pb.ContainerStatusResponse:
        answer = await self._runtime.call(calls.CONTAINER_STATUS, request, timeout=self._timeout)
        checks.check_container_status(answer)
        return answer

    async def update_container_resources(
        self, request: pb.UpdateContainerResourcesRequest
    ) -> pb.UpdateContainerResourcesResponse:
        return await self._runtime.call(calls.UPDATE_CONTAINER_RESOURCES, request, timeout=self._timeout)

    async def reopen_container_log(self, request: pb.ReopenContainerLogRequest) -> pb.ReopenContainerLogResponse:
        return await self._runtime.call(calls.REOPEN_CONTAINER_LOG, request, timeout=self._timeout)

    async def exec_sync(self, request: pb.ExecSyncRequest) -> pb.ExecSyncResponse:
        limit = timedelta(seconds=request.timeout)
        deadline = self._timeout + limit if limit else None
        try:
            return await self._runtime.call(calls.EXEC_SYNC, request, timeout=deadline)
        except DeadlineExceeded as error:
            raise ExecTimeout(request.cmd, limit) from error

    async def exec(self, request: pb.ExecRequest) -> pb.ExecResponse:
        answer = await self._runtime.call(calls.EXEC, request, timeout=self._timeout)
        checks.check_url(answer.url)
        return answer

    async def attach(self, request: pb.AttachRequest) -> pb.AttachResponse:
        answer = await self._runtime.call(calls.ATTACH, request, timeout=self._timeout)
        checks.check_url(answer.url)
        return answer

    async def port_forward(self, request: pb.PortForwardRequest) -> pb.PortForwardResponse:
        answer = await self._runtime.call(calls.PORT_FORWARD, request, timeout=self._timeout)
        checks.check_url(answer.url)
        return answer

    async def container_stats(self, request: pb.ContainerStatsRequest) -> pb.ContainerStatsResponse:
        return await self._runtime.call(calls.CONTAINER_STATS, request, timeout=self._timeout)

    async def list_container_stats(self, request: pb.ListContainerStatsRequest) -> pb.ListContainerStatsResponse:
        return await self._runtime.call(calls.LIST_CONTAINER_STATS, request, timeout=self._timeout)

    async def pod_sandbox_stats(self, request: pb.PodSandboxStatsRequest) -> pb.PodSandboxStatsResponse:
        return await self._runtime.call(calls.POD_SANDBOX_STATS, request, timeout=self._timeout)

    async def list_pod_sandbox_stats(self, request: pb.ListPodSandboxStatsRequest) -> pb.ListPodSandboxStatsResponse:
        return await self._runtime.call(calls.LIST_POD_SANDBOX_STATS, request, timeout=self._timeout)

    async def update_runtime_config(self, request: pb.UpdateRuntimeConfigRequest) -> pb.UpdateRuntimeConfigResponse:
        return await self._runtime.call(calls.UPDATE_RUNTIME_CONFIG, request, timeout=self._timeout)

    async def status(self, request: pb.StatusRequest) -> pb.StatusResponse:
        answer = await self._runtime.call(calls.STATUS, request, timeout=self._timeout)
        checks.check_runtime_status(answer)
        return answer

    async def checkpoint_container(self, request: pb.CheckpointContainerRequest) -> pb.CheckpointContainerResponse:
        """Make a checkpoint. The request timeout is the shortest that the runtime is given, as upstream."""
        if request.timeout < 0:
            raise error_for(Code.INVALID_ARGUMENT, "CheckpointContainer requires the timeout value to be > 0")
        wanted = pb.CheckpointContainerRequest()
        wanted.CopyFrom(request)
        wanted.timeout = max(request.timeout, self._timeout // timedelta(seconds=1))
        deadline = max(self._timeout, timedelta(seconds=min(request.timeout, _LONGEST_CHECKPOINT)))
        return await self._runtime.call(calls.CHECKPOINT_CONTAINER, wanted, timeout=deadline)

    def get_container_events(self, request: pb.GetEventsRequest) -> AsyncGenerator[pb.ContainerEventResponse, None]:
        return self._runtime.stream(calls.GET_CONTAINER_EVENTS, request)

    async def list_metric_descriptors(
        self, request: pb.ListMetricDescriptorsRequest
    ) -> pb.ListMetricDescriptorsResponse:
        return await self._runtime.call(calls.LIST_METRIC_DESCRIPTORS, request, timeout=self._timeout)

    async def list_pod_sandbox_metrics(
        self, request: pb.ListPodSandboxMetricsRequest
    ) -> pb.ListPodSandboxMetricsResponse:
        return await self._runtime.call(calls.LIST_POD_SANDBOX_METRICS, request, timeout=self._timeout)

    async def runtime_config(self, request: pb.RuntimeConfigRequest) -> pb.RuntimeConfigResponse:
        return await self._runtime.call(calls.RUNTIME_CONFIG, request, timeout=self._timeout)

    async def update_pod_sandbox_resources(
        self, request: pb.UpdatePodSandboxResourcesRequest
    ) -> pb.UpdatePodSandboxResourcesResponse:
        return await self._runtime.call(calls.UPDATE_POD_SANDBOX_RESOURCES, request, timeout=self._timeout)

    async def list_images(self, request: pb.ListImagesRequest) -> pb.ListImagesResponse:
        return await self._images.call(calls.LIST_IMAGES, request, timeout=self._timeout)

    async def image_status(self, request: pb.ImageStatusRequest) -> pb.ImageStatusResponse:
        answer = await self._images.call(calls.IMAGE_STATUS, request, timeout=self._timeout)
        checks.check_image_status(answer, request.image)
        return answer

    async def pull_image(self, request: pb.PullImageRequest) -> pb.PullImageResponse:
        answer = await self._images.call(calls.PULL_IMAGE, request, timeout=None)
        checks.check_pulled(answer, request.image)
        return answer

    async def remove_image(self, request: pb.RemoveImageRequest) -> pb.RemoveImageResponse:
        return await self._images.call(calls.REMOVE_IMAGE, request, timeout=self._timeout)

    async def image_fs_info(self, request: pb.ImageFsInfoRequest) -> pb.ImageFsInfoResponse:
        return await self._images.call(calls.IMAGE_FS_INFO, request, timeout=self._timeout)


async def _validated(client: CriClient) -> CriClient:
    try:
        await client.version(pb.VersionRequest())
    except CriError as error:
        raise InvalidRuntime("runtime", client.runtime.endpoint, error) from error
    try:
        await client.image_fs_info(pb.ImageFsInfoRequest())
    except CriError as error:
        raise InvalidRuntime("image", client.images.endpoint, error) from error
    return client
