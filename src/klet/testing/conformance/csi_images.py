"""The images of the CSI drivers and their sidecars that the suite deploys, each one program on the small userland.

The programs are of kubernetes-csi, not of Kubernetes, and `scripts/upstream` can build the hostpath driver alone: the
others have to be put into the directory of upstream's programs.
"""

import subprocess
from collections.abc import Iterable, Iterator, Mapping
from os import environ
from typing import Final

from klet.host.images import ImageConfig, build_image, file
from klet.testing.conformance.userland import Userland
from klet.testing.control_plane.programs import (
    CSI,
    E2E_TEST,
    ProgramMissing,
    find_program,
    missing_programs,
    program_directory,
)

REGISTRY: Final = "registry.k8s.io/sig-storage"
_LISTING_SECONDS: Final = 60


def list_image_names(environment: Mapping[str, str] = environ) -> list[str]:
    """Ask the suite for the images it may use; raises ProgramMissing."""
    command = [str(find_program(E2E_TEST, environment)), "--list-images"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_LISTING_SECONDS)
    if done.returncode:
        raise ProgramMissing(f"{E2E_TEST} --list-images failed with exit code {done.returncode}")
    return done.stdout.split()


def choose_csi_images(names: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
    """Return the images that klet can make, by program: an image is named after the one program in it."""
    chosen: dict[str, tuple[str, ...]] = {}
    for name in dict.fromkeys(names):
        repository, _, tag = name.rpartition(":")
        place, _, program = repository.rpartition("/")
        if tag and place == REGISTRY and program in CSI:
            chosen[program] = (*chosen.get(program, ()), name)
    return chosen


def make_shell_images(names: Iterable[str], userland: Userland) -> Iterator[tuple[str, bytes]]:
    """Yield images that hold the userland alone: enough for specs that deploy a driver and never call it."""
    layers = [userland.busybox_layer()]
    for name in names:
        yield name, build_image(name=name, layers=layers, config=ImageConfig(command=("sh",)))


def missing_csi_programs(names: Iterable[str], environment: Mapping[str, str] = environ) -> tuple[str, ...]:
    """Return the programs that these images need and that are not here."""
    return missing_programs(choose_csi_images(names), environment)


def make_csi_images(
    names: Iterable[str], userland: Userland, environment: Mapping[str, str] = environ
) -> Iterator[tuple[str, bytes]]:
    """Yield names and archives, one at a time; raises ProgramMissing before the first one if any program is missing.

    All tags of an image hold the same program, so that they share their layers.
    """
    chosen = choose_csi_images(names)
    if missing := missing_programs(chosen, environment):
        place = program_directory(environment)
        raise ProgramMissing(f"no {', '.join(missing)} in {place}: klet does not build them, put static ones there")
    plain = userland.busybox_layer()
    for program, tags in chosen.items():
        layers = [plain, [file(program, find_program(program, environment).read_bytes(), 0o755)]]
        for name in tags:
            yield name, build_image(name=name, layers=layers, config=ImageConfig(entrypoint=(f"/{program}",)))
