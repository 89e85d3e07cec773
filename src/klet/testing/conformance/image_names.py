"""The names of the suite's images, read from upstream's list of them: test/utils/image/manifest.go."""

import re
from collections.abc import Mapping
from typing import Final

from klet.errors import KletError

MANIFEST: Final = "test/utils/image/manifest.go"
_REGISTRY: Final = re.compile(r'^\s+(\w+Registry):\s+"([^"]+)",$', re.MULTILINE)
_IMAGE: Final = re.compile(r'^\s+configs\[(\w+)\] = Config\{list\.(\w+), "([^"]+)", "([^"]+)"\}$', re.MULTILINE)


class ImageUnknown(KletError):
    """Upstream's list does not have an image that klet knows how to make."""


def read_image_names(manifest: str) -> Mapping[str, str]:
    """Full references by upstream's identifiers, such as `BusyBox`."""
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
