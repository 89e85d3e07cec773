"""image: the content of an OCI image, which the runtime mounts by itself."""

from datetime import datetime

from klet.api.volume import Volume
from klet.model.pods import PodUID
from klet.volumes.plugins.base import MountRequest, VolumeAttributes, VolumePlugin


class ImagePlugin(VolumePlugin):
    """There is nothing to do: the image is pulled with those of the containers."""

    name = "kubernetes.io/image"

    def supports(self, volume: Volume) -> bool:
        return volume.image is not None

    def attributes(self, volume: Volume) -> VolumeAttributes:  # noqa: ARG002 - the same for all of them
        return VolumeAttributes(read_only=True)

    def path(self, uid: PodUID, volume: Volume) -> str:  # noqa: ARG002 - the same for all of them
        return ""

    async def set_up(self, request: MountRequest) -> datetime | None:  # noqa: ARG002 - nothing to set up
        return None

    async def tear_down(self, uid: PodUID, name: str) -> None:
        """Do nothing."""
