"""Where `klet install` writes on the machine, and whether a node is installed there; quick to import."""

import os
from pathlib import Path
from typing import Final

from msgspec import Struct

from klet.cli.install.marks import FileState, find_file
from klet.cli.install.units import KUBELET_UNIT, NodeUnits

ROOT_VARIABLE: Final = "KLET_MACHINE_ROOT"
"""Another directory than / for units and the kubelet's program; for tests, and for looking at what would be written."""
_PACKAGED: Final = ("usr/lib/systemd/system", "lib/systemd/system", "usr/local/lib/systemd/system")
_DROP_IN: Final = f"{KUBELET_UNIT}.d/10-kubeadm.conf"


class MachineFiles(Struct, frozen=True):
    """The files of the machine that are not in a state directory."""

    root: Path

    @property
    def units(self) -> Path:
        """The administrator's units, which go before those of packages."""
        return self.root / "etc/systemd/system"

    @property
    def kubelet_program(self) -> Path:
        return self.root / "usr/bin/kubelet"

    @property
    def kubelet_aside(self) -> Path:
        """Where a kubelet that is not klet's is kept."""
        return self.root / "usr/bin/kubelet.before-klet"

    @property
    def kubelet_unit(self) -> Path:
        return self.units / KUBELET_UNIT

    @property
    def kubeadm_drop_in(self) -> Path:
        return self.units / _DROP_IN

    @property
    def kubelet_configuration(self) -> Path:
        """What kubeadm writes when the node joins; without it no kubelet starts."""
        return self.root / "var/lib/kubelet/config.yaml"

    def packaged(self, own: Path) -> Path | None:
        """Return the same unit or drop-in of a package."""
        name = own.relative_to(self.units)
        return next((path for place in _PACKAGED if (path := self.root / place / name).exists()), None)

    def unit_paths(self, units: NodeUnits) -> tuple[Path, Path]:
        return self.units / units.containerd, self.units / units.agent

    def is_installed(self, units: NodeUnits) -> bool:
        """Return whether klet wrote the units of a node, on a machine that systemd runs."""
        if not (self.root / "run/systemd/system").is_dir():
            return False
        states = {find_file(path).state for path in self.unit_paths(units)}
        return states <= {FileState.OURS, FileState.CHANGED}


def machine_files() -> MachineFiles:
    return MachineFiles(Path(os.environ.get(ROOT_VARIABLE) or "/"))
