"""secret: the keys of a Secret as files."""

from klet.api.config import Secret
from klet.model.objects import ObjectMissing
from klet.model.roles import ObjectReader
from klet.volumes.generated_files import GeneratedFiles
from klet.volumes.payloads import required_mode, secret_payload
from klet.volumes.plugins.base import MountRequest
from klet.volumes.plugins.generated import Content, GeneratedFilesPlugin
from klet.volumes.spec import VolumeSpec


class SecretPlugin(GeneratedFilesPlugin):
    """The keys of a secret as files, in memory."""

    name = "kubernetes.io/secret"

    def __init__(self, *, files: GeneratedFiles, objects: ObjectReader) -> None:
        super().__init__(files=files)
        self._objects = objects

    def supports(self, spec: VolumeSpec) -> bool:
        return spec.volume.secret is not None

    async def collect(self, request: MountRequest) -> Content:
        source = request.volume.secret
        assert source is not None  # by `supports`
        is_optional = bool(source.optional)
        found = await read_secret(self._objects, request, source.secret_name, is_optional=is_optional)
        mode = required_mode(source.default_mode)
        return Content(secret_payload(found, source.items, default_mode=mode, is_optional=is_optional))


async def read_secret(objects: ObjectReader, request: MountRequest, name: str, *, is_optional: bool) -> Secret:
    """Return a secret; an empty one in place of one that may be missing."""
    try:
        return await objects.secret(request.pod.metadata.namespace, name)
    except ObjectMissing:
        if not is_optional:
            raise
        return Secret()
