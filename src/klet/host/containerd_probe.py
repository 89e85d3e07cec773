"""What this machine lets a private containerd do; the answers go into ContainerdSettings. Both functions block."""

import subprocess
from pathlib import Path

from klet.host.files import scratch_directory


def find_snapshotter(directory: Path) -> str:
    """Return `overlayfs` if an overlay can be mounted in the directory, else `native`, which copies every layer."""
    with scratch_directory(directory, prefix="overlay-") as base:
        for name in ("lower", "upper", "work", "merged"):
            (base / name).mkdir()
        options = f"lowerdir={base}/lower,upperdir={base}/upper,workdir={base}/work"
        mount = ["mount", "-t", "overlay", "-o", options, "overlay", str(base / "merged")]
        if subprocess.run(mount, check=False, capture_output=True).returncode:
            return "native"
        subprocess.run(["umount", str(base / "merged")], check=True, capture_output=True)
        return "overlayfs"


def has_capability(number: int, *, status: Path = Path("/proc/self/status")) -> bool:
    """Return whether the process has an effective capability."""
    for line in status.read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> number & 1)
    return False
