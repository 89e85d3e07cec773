"""QEMU: which accelerator works here, how files are shared, and processes that never stay behind."""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from klet.errors import KletError

QEMU: Final = "qemu-system-x86_64"
KVM: Final = "kvm"
EMULATION: Final = "tcg,thread=multi"
_SHARING_DAEMONS: Final = ("/usr/lib/qemu/virtiofsd", "/usr/libexec/virtiofsd")
_PATIENCE_SECONDS: Final = 5
# A firmware of three instructions, which ends the machine with code 0x10: mov dx, 0xf4; mov al, 0x10; out dx, al.
_FIRMWARE: Final = b"\xf4" * 0xFFF0 + b"\xba\xf4\x00\xb0\x10\xee".ljust(16, b"\xf4")
_FIRMWARE_EXIT: Final = 0x10 << 1 | 1


class MachineFailed(KletError):
    """A virtual machine could not be built, started or reached; the message says why."""


def check_programs(packages: Mapping[str, str]) -> None:
    """Raise MachineFailed if a program is missing."""
    if reason := describe_missing(packages):
        raise MachineFailed(reason)


def describe_missing(packages: Mapping[str, str]) -> str:
    """Return what this machine lacks to run others, and the Debian packages that have it; empty if nothing."""
    missing = [name for name in packages if not shutil.which(name)]
    if missing:
        names = " ".join(dict.fromkeys(packages[name] for name in missing))
        return f"not installed: {', '.join(missing)}: apt-get install {names}"
    return "" if os.geteuid() == 0 else "root is needed to share the files of this machine"


def choose_accelerator() -> str:
    return KVM if _kvm_works() else EMULATION


def base_command(*, accelerator: str, cpus: int, memory: int) -> list[str]:
    """Return the part of QEMU's command line that every machine has; memory is in MiB, and shared for virtiofs."""
    return [
        *(QEMU, "-nodefaults", "-no-user-config", "-display", "none"),
        *("-accel", accelerator, "-cpu", "max", "-smp", str(cpus), "-m", f"{memory}M"),
        *("-object", f"memory-backend-memfd,id=memory,size={memory}M,share=on", "-numa", "node,memdev=memory"),
    ]


def share_arguments(tag: str, socket: Path) -> list[str]:
    return ["-chardev", f"socket,id={tag},path={socket}", "-device", f"vhost-user-fs-pci,chardev={tag},tag={tag}"]


@contextmanager
def share_directory(directory: Path, socket: Path) -> Iterator[None]:
    """Offer a directory of this machine to a virtual one, which mounts it read-only."""
    daemon = next((path for path in _SHARING_DAEMONS if Path(path).exists()), "virtiofsd")
    options = f"source={directory},sandbox=chroot,cache=always"
    command = [daemon, f"--socket-path={socket}", "--rlimit-nofile=0", "-o", options]
    socket.unlink(missing_ok=True)
    with tempfile.TemporaryFile() as said, running(command, stderr=said) as process:
        while not socket.exists():
            if process.poll() is not None:
                said.seek(0)
                raise MachineFailed(f"{daemon} ended: {said.read(500).decode(errors='replace').strip()}")
            time.sleep(0.01)
        yield


@contextmanager
def running(
    command: Sequence[str], *, stdout: IO[bytes] | None = None, stderr: IO[bytes] | None = None
) -> "Iterator[subprocess.Popen[bytes]]":
    """Start a process that ends with the block, and with this process should that be killed."""
    bound = ["setpriv", "--pdeathsig", "KILL", *command]
    with subprocess.Popen(bound, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(_PATIENCE_SECONDS)
                except subprocess.TimeoutExpired:
                    process.kill()


def _kvm_works() -> bool:
    """Return whether KVM can run a Linux: it needs the processor's help, and /dev/kvm may be there without it."""
    flags = set(Path("/proc/cpuinfo").read_text().split())
    if not flags & {"vmx", "svm"} or not os.access("/dev/kvm", os.R_OK | os.W_OK):
        return False
    with tempfile.NamedTemporaryFile() as firmware:
        firmware.write(_FIRMWARE)
        firmware.flush()
        probe = [
            *(QEMU, "-accel", KVM, "-cpu", "max", "-nodefaults", "-display", "none"),
            *("-bios", firmware.name, "-device", "isa-debug-exit,iobase=0xf4,iosize=4"),
        ]
        try:
            done = subprocess.run(probe, capture_output=True, timeout=10, check=False)
        except subprocess.TimeoutExpired:
            return False
    return done.returncode == _FIRMWARE_EXIT
