"""Debian's cloud kernel for the small machine: the installed one, or one that is unpacked in the cache."""

import os
import re
import shutil
from pathlib import Path

from msgspec import Struct

from klet.testing.debian_packages import find_cache, run_tool, unpack_packages
from klet.testing.vm.qemu import MachineFailed


class Kernel(Struct, frozen=True):
    image: Path
    modules: Path


def find_kernel() -> Kernel:
    """Return a kernel, downloaded if there is none yet; raises MachineFailed."""
    cache = find_cache() / "vm"
    found = installed_kernel(Path("/")) or installed_kernel(cache)
    if found is None:
        _download(cache)
        found = installed_kernel(cache)
    if found is None:
        raise MachineFailed("no Debian cloud kernel was found or could be downloaded")
    return found


def installed_kernel(root: Path) -> Kernel | None:
    images = sorted(root.glob("boot/vmlinuz-*-cloud-amd64"), key=_version_order, reverse=True)
    for image in images:
        modules = root / "lib/modules" / image.name.removeprefix("vmlinuz-")
        if (modules / "modules.dep").exists():
            return Kernel(image, modules)
    return None


def _version_order(path: Path) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", path.name)]


def _download(cache: Path) -> None:
    """Fetch the package that the current kernel's name stands for, and unpack it without installing."""
    cache.mkdir(parents=True, exist_ok=True)
    depends = run_tool("apt-cache", "depends", "--important", "linux-image-cloud-amd64")
    package = re.search(r"Depends: (linux-image-\S+)", depends)
    if package is None:
        raise MachineFailed("apt knows no linux-image-cloud-amd64")
    unpack_packages(cache, package[1], with_needs=False)
    # Not every machine has kmod's; busybox is needed anyway, and its modprobe reads what its own depmod writes.
    found = shutil.which("depmod", path=f"/usr/sbin:/sbin:{os.environ.get('PATH', os.defpath)}")
    depmod = [found] if found else ["busybox", "depmod"]
    for modules in (cache / "lib/modules").iterdir():
        run_tool(*depmod, "-b", str(cache), modules.name)
