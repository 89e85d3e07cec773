"""A registry for `bench.images`, as a process of its own: images of one busybox layer and one of noise, from memory.

Run as: python -m bench.image_registry COUNT MEBIBYTES. It prints its address and ends with its standard input.
"""

import asyncio
import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from klet.host.images import ImageEntry, directory, file, read_applets, symlink
from klet.testing.held_registry import HeldImage, HeldRegistry, make_image

MIB = 1 << 20


async def main(count: int, size: int) -> None:
    busybox = Path(shutil.which("busybox") or "/bin/busybox")
    applets = await read_applets(busybox)
    images = list(make_images(busybox, [name for name in applets if name != "busybox"], count, size))
    async with HeldRegistry(images).serve() as registry:
        print(registry.address, flush=True)
        await asyncio.to_thread(sys.stdin.buffer.read)


def make_images(busybox: Path, applets: list[str], count: int, size: int) -> Iterator[HeldImage]:
    userland: list[ImageEntry] = [directory("bin"), file("bin/busybox", busybox.read_bytes(), 0o755)]
    userland += [symlink(f"bin/{name}", "busybox") for name in applets]
    for number in range(count):
        noise = random.Random(number).randbytes(size)
        yield make_image(f"bench/image-{number}", layers=[userland, [file("noise", noise)]])


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]) * MIB))
