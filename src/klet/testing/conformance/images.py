"""The images of the suite, made from upstream's programs and a small userland, under the names that the suite uses."""

import io
import json
import re
import shutil
import tarfile
from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct

from klet.errors import KletError
from klet.host.images import ImageConfig, ImageEntry, build_image, build_pause_image, directory, file, symlink
from klet.testing.conformance.userland import Userland
from klet.testing.control_plane.build import fetch_source
from klet.testing.control_plane.programs import AGNHOST, NO_NEW_PRIVILEGES, cache_directory, find_program

MANIFEST: Final = "test/utils/image/manifest.go"
"""Upstream's list of the images, with their names."""
KEYS: Final = ("test/images/agnhost/porter/localhost.crt", "test/images/agnhost/porter/localhost.key")
_SET_USER: Final = 0o4000
_PORTER: Final = ("localhost.crt", "localhost.key")
_REGISTRY_IMAGE: Final = ("pause", "testing")
"""The image that agnhost's registry serves, and its tag."""
_USER: Final = "user-defined-in-image:x:1000:1000::/home/user-defined-in-image:/bin/sh\n"
_GROUPS: Final = "user-defined-in-image:x:1000:\ngroup-defined-in-image:x:50000:user-defined-in-image\n"
_PAGE: Final = "<html><body>Welcome to nginx!</body></html>\n"
_REGISTRY: Final = re.compile(r'^\s+(\w+Registry):\s+"([^"]+)",$', re.MULTILINE)
_IMAGE: Final = re.compile(r'^\s+configs\[(\w+)\] = Config\{list\.(\w+), "([^"]+)", "([^"]+)"\}$', re.MULTILINE)


class ImageUnknown(KletError):
    """Upstream's list does not have an image that klet knows how to make."""


class Materials(Struct, frozen=True):
    """Files of Kubernetes' source that the images need."""

    manifest: str
    keys: tuple[bytes, bytes]


def find_materials() -> Materials:
    """Read them from the cache, or bring them there from Go's; raises ProgramMissing."""
    place = cache_directory() / "suite"
    needed = (MANIFEST, *KEYS)
    if not all((place / name).is_file() for name in needed):
        source = fetch_source()
        for name in needed:
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source / name, place / name)
    certificate, key = ((place / name).read_bytes() for name in KEYS)
    return Materials(manifest=(place / MANIFEST).read_text(), keys=(certificate, key))


def read_image_names(manifest: str) -> Mapping[str, str]:
    """Return full references by upstream's identifiers, such as `BusyBox`."""
    registries = dict(_REGISTRY.findall(manifest))
    return {
        identifier: f"{registries[registry]}/{name}:{tag}"
        for identifier, registry, name, tag in _IMAGE.findall(manifest)
        if registry in registries
    }


def find_image_name(names: Mapping[str, str], identifier: str) -> str:
    if identifier not in names:
        raise ImageUnknown(f"{MANIFEST} of this release has no image {identifier}")
    return names[identifier]


def make_images(materials: Materials, userland: Userland) -> Iterator[tuple[str, bytes]]:
    """Yield names and archives, one at a time: the largest takes 200 MB while it is made."""
    names = read_image_names(materials.manifest)
    plain = userland.busybox_layer()
    for identifier in ("Agnhost", "AgnhostPrev"):
        layers = agnhost_layers(materials, userland, find_program(AGNHOST).read_bytes())
        config = ImageConfig(entrypoint=("/agnhost",), command=("pause",))
        yield _make(find_image_name(names, identifier), layers, config)
    for identifier in ("BusyBox", "IpcUtils"):
        yield _make(find_image_name(names, identifier), [plain], ImageConfig(command=("sh",)))
    yield _make(find_image_name(names, "NonRoot"), [plain], ImageConfig(command=("sh",), user="1234"))
    program = file("usr/local/bin/nnp", find_program(NO_NEW_PRIVILEGES).read_bytes(), 0o755 | _SET_USER)
    yield _make(find_image_name(names, "Nonewprivs"), [plain, [program]], ImageConfig(command=("nnp",)))
    for identifier in ("Nginx", "NginxNew"):
        page = [file("var/www/index.html", _PAGE)]
        server = ImageConfig(command=("httpd", "-f", "-p", "80", "-h", "/var/www"))
        yield _make(find_image_name(names, identifier), [plain, page], server)
    pause = find_image_name(names, "Pause")
    yield pause, build_pause_image(name=pause)


def agnhost_layers(materials: Materials, userland: Userland, program: bytes) -> list[list[ImageEntry]]:
    """Return what upstream's Dockerfile of agnhost puts in place, without its tools for DNS and speed."""
    own = [
        file("agnhost", program, 0o755),
        symlink("agnhost-2", "agnhost"),
        *(file(name, data) for name, data in zip(_PORTER, materials.keys, strict=True)),
        directory("uploads"),
        directory("home/user-defined-in-image", 0o755, uid=1000, gid=1000),
        *registry_entries(build_pause_image(name=":".join(_REGISTRY_IMAGE))),
    ]
    return [userland.busybox_layer(users=_USER, groups=_GROUPS), userland.linked_layer(), own]


def registry_entries(archive: bytes) -> list[ImageEntry]:
    """Return an image as agnhost's registry serves it: manifests and blobs by digest, and the digest by tag."""
    name, tag = _REGISTRY_IMAGE
    base = f"var/registry/{name}"
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        members = {member.name: _read(tar, member) for member in tar.getmembers()}
    digest = json.loads(members["index.json"])["manifests"][0]["digest"]
    blobs = {
        path.removeprefix("blobs/").replace("/", ":"): data
        for path, data in members.items()
        if path.startswith("blobs/")
    }
    return [
        *(directory(path) for path in ("var/registry", base, f"{base}/manifests", f"{base}/blobs")),
        file(f"{base}/manifests/{tag}", f"{digest}\n"),
        file(f"{base}/manifests/{digest}", blobs[digest]),
        *(file(f"{base}/blobs/{known}", data) for known, data in blobs.items() if known != digest),
    ]


def _read(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    opened = tar.extractfile(member)
    return b"" if opened is None else opened.read()


def _make(name: str, layers: list[list[ImageEntry]], config: ImageConfig) -> tuple[str, bytes]:
    return name, build_image(name=name, layers=layers, config=config)
