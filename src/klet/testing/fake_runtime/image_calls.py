"""The calls of the image service."""

from klet.cri.errors import Code
from klet.testing.fake_runtime.calls import CallWait, HandlerTable, RpcFailure, Steps
from klet.testing.fake_runtime.images import FakeImage, Registry, StoredImage, is_valid_reference, normalize
from klet.testing.fake_runtime.timeline import nanoseconds
from klet.testing.fake_runtime.world import World
from klet.wire import containerd_images_pb2 as containerd
from klet.wire import cri_v1_pb2 as pb

MOUNTPOINT = "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs"


class ImageCalls:
    """The store of images; `registry` is the world outside."""

    def __init__(self, world: World, registry: Registry) -> None:
        self._world = world
        self._registry = registry

    def handlers(self) -> HandlerTable:
        return {
            "ListImages": self._list,
            "ImageStatus": self._status,
            "PullImage": self._pull,
            "RemoveImage": self._remove,
            "ImageFsInfo": self._fs_info,
        }

    def load(self, image: FakeImage, *, pulled_as: str | None = None) -> StoredImage:
        stored = self._world.images.add(image, pulled_as=pulled_as)
        for name in (*stored.tags, image.image_id):
            self._world.emit("/images/create", name, containerd.ImageCreate(name=name))
        return stored

    def _list(self, _request: pb.ListImagesRequest) -> pb.ListImagesResponse:
        """List all images: the filter is ignored, as containerd 1.6 does."""
        return pb.ListImagesResponse(images=[stored.message() for stored in self._world.images.all()])

    def _status(self, request: pb.ImageStatusRequest) -> pb.ImageStatusResponse:
        stored = self._world.images.find(request.image.image)
        answer = pb.ImageStatusResponse(image=stored.message() if stored is not None else None)
        if request.verbose and stored is not None:
            answer.info["info"] = "{}"
        return answer

    def _pull(self, request: pb.PullImageRequest) -> Steps:
        asked = request.image.image
        if not is_valid_reference(asked):
            raise RpcFailure(Code.UNKNOWN, f'failed to parse image reference "{asked}": invalid reference format')
        name = normalize(asked)
        image = self._registry(name)
        if image is None:
            what = f'failed to pull and unpack image "{name}": failed to resolve reference "{name}"'
            raise RpcFailure(Code.NOT_FOUND, f"{what}: {name}: not found")
        if image.login is not None and image.login != (request.auth.username, request.auth.password):
            what = f'failed to pull and unpack image "{name}": failed to resolve reference "{name}"'
            raise RpcFailure(Code.UNKNOWN, f"{what}: pull access denied, authorization failed")
        if image.pull_time:
            yield CallWait(until=self._world.timeline.now + image.pull_time)
        if image.pull_failure is not None:
            raise RpcFailure(image.pull_failure.code, image.pull_failure.message)
        return pb.PullImageResponse(image_ref=self.load(image, pulled_as=name).image.image_id)

    def _remove(self, request: pb.RemoveImageRequest) -> pb.RemoveImageResponse:
        """Remove the image, even if containers still use it; its absence is no error."""
        stored = self._world.images.find(request.image.image)
        if stored is not None:
            self._world.images.remove(stored)
            for name in (*stored.tags, *stored.digests, stored.image.image_id):
                self._world.emit("/images/delete", name, containerd.ImageDelete(name=name))
        return pb.RemoveImageResponse()

    def _fs_info(self, _request: pb.ImageFsInfoRequest) -> pb.ImageFsInfoResponse:
        usage = pb.FilesystemUsage(
            timestamp=nanoseconds(self._world.timeline.now), fs_id=pb.FilesystemIdentifier(mountpoint=MOUNTPOINT)
        )
        usage.used_bytes.value = self._world.images.used_bytes()
        usage.inodes_used.value = 100 * len(self._world.images.all())
        return pb.ImageFsInfoResponse(image_filesystems=[usage])
