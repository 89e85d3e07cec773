"""image: the content of an OCI image, which the runtime mounts by itself."""

from datetime import datetime

from klet.model.pods import PodUID
from klet.volumes.plugins.base import MountRequest, VolumeAttributes, VolumePlugin
from klet.volumes.spec import VolumeSpec


class ImagePlugin(VolumePlugin):
    """There is nothing to do: the image is pulled with those of the containers."""

    name = "kubernetes.io/image"

    def supports(self, spec: VolumeSpec) -> bool:
        return spec.volume.image is not None

    def attributes(self, spec: VolumeSpec) -> VolumeAttributes:  # noqa: ARG002 - the same for all of them
        return VolumeAttributes(read_only=True)

    def path(self, uid: PodUID, spec: VolumeSpec) -> str:  # noqa: ARG002 - the same for all of them
        return ""

    async def set_up(self, request: MountRequest) -> datetime | None:  # noqa: ARG002 - nothing to set up
        return None

    async def tear_down(self, uid: PodUID, name: str) -> None:
        """Do nothing."""
