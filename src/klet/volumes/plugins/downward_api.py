"""downwardAPI: fields of the pod and resources of its containers as files."""

from klet.model.roles import NodeResources
from klet.volumes.generated_files import GeneratedFiles
from klet.volumes.payloads import downward_payload, required_mode
from klet.volumes.plugins.base import MountRequest
from klet.volumes.plugins.generated import Content, GeneratedFilesPlugin
from klet.volumes.spec import VolumeSpec


class DownwardApiPlugin(GeneratedFilesPlugin):
    """The pod's own fields as files, in memory."""

    name = "kubernetes.io/downward-api"

    def __init__(self, *, files: GeneratedFiles, node: NodeResources) -> None:
        super().__init__(files=files)
        self._node = node

    def supports(self, spec: VolumeSpec) -> bool:
        return spec.volume.downward_api is not None

    async def collect(self, request: MountRequest) -> Content:
        source = request.volume.downward_api
        assert source is not None  # by `supports`
        mode, allocatable = required_mode(source.default_mode), self._node.allocatable()
        payload = downward_payload(
            request.pod, request.allocation, source.items, default_mode=mode, allocatable=allocatable
        )
        return Content(payload)
