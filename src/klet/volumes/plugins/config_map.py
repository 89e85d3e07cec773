"""configMap: the keys of a ConfigMap as files."""

from klet.api.config import ConfigMap
from klet.model.objects import ObjectMissing
from klet.model.roles import ObjectReader
from klet.volumes.generated_files import GeneratedFiles
from klet.volumes.media import DISK
from klet.volumes.payloads import config_map_payload, required_mode
from klet.volumes.plugins.base import MountRequest
from klet.volumes.plugins.generated import Content, GeneratedFilesPlugin
from klet.volumes.spec import VolumeSpec


class ConfigMapPlugin(GeneratedFilesPlugin):
    """The keys of a config map as files, on disk."""

    name = "kubernetes.io/configmap"
    medium = DISK

    def __init__(self, *, files: GeneratedFiles, objects: ObjectReader) -> None:
        super().__init__(files=files)
        self._objects = objects

    def supports(self, spec: VolumeSpec) -> bool:
        return spec.volume.config_map is not None

    async def collect(self, request: MountRequest) -> Content:
        source = request.volume.config_map
        assert source is not None  # by `supports`
        found = await read_config_map(self._objects, request, source.name, is_optional=bool(source.optional))
        mode = required_mode(source.default_mode)
        is_optional = bool(source.optional)
        return Content(config_map_payload(found, source.items, default_mode=mode, is_optional=is_optional))


async def read_config_map(objects: ObjectReader, request: MountRequest, name: str, *, is_optional: bool) -> ConfigMap:
    """Return a config map; an empty one in place of one that may be missing."""
    try:
        return await objects.config_map(request.pod.metadata.namespace, name)
    except ObjectMissing:
        if not is_optional:
            raise
        return ConfigMap()
