"""Container images made from files: the pause image, a busybox image, and any other for tests and examples.

The same input gives the same bytes. An image is a tar that both OCI tools and `docker load` read.
"""

import asyncio
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct, field

from klet.host.containerd_config import PAUSE_IMAGE
from klet.host.errors import ProcessFailed
from klet.host.machine.reader import host_architecture
from klet.host.pause import build_pause_program

BUSYBOX_IMAGE = "klet.local/busybox:1"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class ImageEntry(Struct, frozen=True, kw_only=True):
    """A file, directory or symbolic link of an image; the path has no leading slash."""

    path: str
    kind: bytes = tarfile.REGTYPE
    data: bytes = b""
    target: str = ""
    mode: int = 0o644
    uid: int = 0
    gid: int = 0


class ImageConfig(Struct, frozen=True, kw_only=True):
    """How a container of the image runs when its spec does not say."""

    entrypoint: Sequence[str] = ()
    command: Sequence[str] = ()
    environment: Sequence[str] = (f"PATH={PATH}",)
    working_dir: str = ""
    user: str = ""
    stop_signal: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    volumes: Sequence[str] = ()
    architecture: str = ""
    """`amd64` or `arm64`; this machine's if empty."""


def file(path: str, data: bytes | str, mode: int = 0o644, *, uid: int = 0, gid: int = 0) -> ImageEntry:
    content = data.encode() if isinstance(data, str) else data
    return ImageEntry(path=path, data=content, mode=mode, uid=uid, gid=gid)


def directory(path: str, mode: int = 0o755, *, uid: int = 0, gid: int = 0) -> ImageEntry:
    return ImageEntry(path=path, kind=tarfile.DIRTYPE, mode=mode, uid=uid, gid=gid)


def symlink(path: str, target: str) -> ImageEntry:
    return ImageEntry(path=path, kind=tarfile.SYMTYPE, target=target, mode=0o777)


def build_image(*, name: str, layers: Sequence[Sequence[ImageEntry]], config: ImageConfig) -> bytes:
    """Return an image archive; `name` is the full reference, such as klet.local/busybox:1."""
    manifest_blob, (config_blob, *tars) = image_blobs(layers, config)
    names = {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rpartition(":")[2]}
    index = {"schemaVersion": 2, "manifests": [{**_descriptor(_MANIFEST, manifest_blob), "annotations": names}]}
    docker = [{"Config": _blob_path(config_blob), "RepoTags": [name], "Layers": [_blob_path(tar) for tar in tars]}]
    blobs = {_blob_path(blob): blob for blob in (manifest_blob, config_blob, *tars)}
    return _tar(
        [
            file("oci-layout", _json({"imageLayoutVersion": "1.0.0"})),
            file("index.json", _json(index)),
            file("manifest.json", _json(docker)),
            *(file(path, blob) for path, blob in blobs.items()),
        ]
    )


def image_blobs(layers: Sequence[Sequence[ImageEntry]], config: ImageConfig) -> tuple[bytes, Sequence[bytes]]:
    """Return the manifest of an image, and what it refers to: the configuration, then the layers."""
    tars = [_tar(layer) for layer in layers]
    config_blob = _json(_image_config(config, tars))
    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": _descriptor("application/vnd.oci.image.config.v1+json", config_blob),
        "layers": [_descriptor("application/vnd.oci.image.layer.v1.tar", tar) for tar in tars],
    }
    return _json(manifest), (config_blob, *tars)


def build_pause_image(*, name: str = PAUSE_IMAGE, architecture: str = "") -> bytes:
    """Return the image of pod sandboxes: one static program of a few hundred bytes."""
    machine = architecture or host_architecture()
    config = ImageConfig(entrypoint=("/pause",), user="65535:65535", architecture=machine)
    return build_image(name=name, layers=[[file("pause", build_pause_program(machine), 0o755)]], config=config)


def build_busybox_image(*, binary: bytes, applets: Sequence[str], name: str = BUSYBOX_IMAGE) -> bytes:
    """Return a small userland from a static busybox and the names it answers to."""
    layer = [
        *(directory(path) for path in ("bin", "dev", "etc", "home", "proc", "sys", "usr", "usr/bin", "var", "var/log")),
        directory("root", 0o700),
        directory("tmp", 0o1777),
        file("bin/busybox", binary, 0o755),
        *(symlink(f"bin/{applet}", "busybox") for applet in sorted(set(applets) - {"busybox"})),
        symlink("usr/bin/env", "/bin/env"),
        file("etc/passwd", _USERS),
        file("etc/group", _GROUPS),
        file("etc/shadow", "root:*:::::::\n", 0o640),
    ]
    return build_image(name=name, layers=[layer], config=ImageConfig(command=("sh",)))


async def read_applets(busybox: Path) -> Sequence[str]:
    """Return the names a busybox binary answers to."""
    return (await _output(str(busybox), "--list")).decode().split()


async def import_image(
    tar: Path, *, address: str, ctr: str = "ctr", namespace: str = "k8s.io", snapshotter: str = "overlayfs"
) -> None:
    """Give an image archive to containerd, whose CRI side learns of it by an event some milliseconds later."""
    images = ("images", "import", "--snapshotter", snapshotter, str(tar))
    await _output(ctr, "--address", address, "--namespace", namespace, *images)


_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_USERS = """\
root:x:0:0:root:/root:/bin/sh
daemon:x:1:1:daemon:/usr/sbin:/bin/false
nobody:x:65534:65534:nobody:/home:/bin/false
"""
_GROUPS = "root:x:0:\ndaemon:x:1:\nnogroup:x:65534:\n"


def _image_config(config: ImageConfig, tars: Sequence[bytes]) -> Mapping[str, object]:
    run = {
        "Env": list(config.environment),
        "Entrypoint": list(config.entrypoint),
        "Cmd": list(config.command),
        "WorkingDir": config.working_dir,
        "User": config.user,
        "StopSignal": config.stop_signal,
        "Labels": dict(config.labels),
        "Volumes": {path: {} for path in config.volumes},
    }
    return {
        "created": "1970-01-01T00:00:00Z",
        "architecture": config.architecture or host_architecture(),
        "os": "linux",
        "config": {name: value for name, value in run.items() if value},
        "rootfs": {"type": "layers", "diff_ids": [_digest(tar) for tar in tars]},
    }


def _tar(entries: Sequence[ImageEntry]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for entry in entries:
            info = tarfile.TarInfo(entry.path)
            info.type, info.mode, info.uid, info.gid = entry.kind, entry.mode, entry.uid, entry.gid
            info.linkname, info.size = entry.target, len(entry.data)
            archive.addfile(info, io.BytesIO(entry.data))
    return buffer.getvalue()


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _descriptor(media_type: str, blob: bytes) -> dict[str, object]:
    return {"mediaType": media_type, "digest": _digest(blob), "size": len(blob)}


def _blob_path(blob: bytes) -> str:
    return f"blobs/{_digest(blob).replace(':', '/')}"


async def _output(*command: str) -> bytes:
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        message = f"cannot run {command[0]}: {error.strerror}"
        raise ProcessFailed(message, returncode=None) from error
    try:
        stdout, stderr = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    if process.returncode:
        message = f"{' '.join(command)} ended with {process.returncode}: {stderr.decode(errors='replace').strip()}"
        raise ProcessFailed(message, returncode=process.returncode, stdout=stdout, stderr=stderr)
    return stdout
