"""The small machine: this machine's files and a kernel with cgroup version 2, up in seconds, for one command.

It sees this machine's files through virtiofs, read-only, with a writable layer in memory on top, so the command finds
everything in its place and changes nothing here.
"""

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct

from klet.testing.vm.initramfs import build_archive, module_files
from klet.testing.vm.kernel import Kernel, find_kernel
from klet.testing.vm.qemu import (
    QEMU,
    MachineFailed,
    base_command,
    check_programs,
    choose_accelerator,
    running,
    share_arguments,
    share_directory,
)

TIMED_OUT: Final = 124
_MODULES: Final = ("virtio_pci", "virtiofs", "overlay")
_PASSED_ON: Final = ("PATH", "HOME", "LANG", "LC_ALL", "PYTHONPATH", "PYTHONHASHSEED", "VIRTUAL_ENV", "CI")
_DIRECTORIES: Final = ("bin", "modules", "proc", "sys", "dev", "lower", "upper", "new")
_KERNEL_ARGUMENTS: Final = (
    "console=ttyS1 quiet panic=-1 reboot=t mitigations=off cgroup_no_v1=all no_timer_check tsc=reliable "
    "random.trust_cpu=on"
)

# Serial ports of the machine: 0 the command's output, 1 the kernel's console, 2 the exit code.
_INIT: Final = """\
#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
exec >/dev/ttyS1 2>&1
for module in {modules}; do insmod /modules/$module.ko; done
mount -t virtiofs -o ro root /lower || reboot -f
mount -t tmpfs -o size=75% upper /upper
mkdir /upper/files /upper/work
mount -t overlay -o lowerdir=/lower,upperdir=/upper/files,workdir=/upper/work root /new || reboot -f
mount --move /proc /new/proc
mount --move /sys /new/sys
mount --move /dev /new/dev
# Not /tmp: the checkout may lie below it, and the overlay keeps what is written there out of the host.
for directory in /run /dev/shm; do mkdir -p /new$directory; mount -t tmpfs -o mode=1777 tmpfs /new$directory; done
cp /bin/busybox /command /second /new/run
# A chroot would not do: a container entered later would see the root of the mount namespace, not its own.
exec switch_root -c /dev/ttyS1 /new /run/busybox sh /run/second
"""

# In the root that the command sees.
_SECOND_INIT: Final = """\
PATH=/usr/sbin:/usr/bin:/sbin:/bin
# What the kernel asks for later (bridges, veth pairs, netfilter) it loads itself, with busybox's modprobe.
mkdir -p /lib/modules/$(uname -r)
mount --bind {module_directory} /lib/modules/$(uname -r)
ln -s /run/busybox /run/modprobe
echo /run/modprobe >/proc/sys/kernel/modprobe
# The host's /tmp shows through the overlay, with the work of others in it; the command gets one of its own.
mkdir -m 1777 /run/tmp
mkdir -p /dev/pts
mount -t devpts devpts /dev/pts
mount -t cgroup2 cgroup2 /sys/fs/cgroup
mount --make-rshared /
ip link set lo up
hostname klet-vm
stty -F /dev/ttyS0 raw
stty -F /dev/ttyS2 raw
# Through a pipe: the command shall not take the serial port for somebody's terminal.
{ sh /run/command </dev/null 2>&1; echo $? >/dev/ttyS2; } | cat >/dev/ttyS0
sync
/run/busybox reboot -f
"""


class SmallMachine(Struct, frozen=True, kw_only=True):
    """What the machine has, and how long its command may take; memory is in MiB."""

    memory: int
    cpus: int
    timeout: float
    accelerator: str = ""
    is_verbose: bool = False

    def run(self, command: Sequence[str]) -> int:
        """Run a command there; return its exit code, or 124 after the time limit. Raises MachineFailed."""
        check_programs({QEMU: "qemu-system-x86", "busybox": "busybox-static"})
        with tempfile.TemporaryDirectory(prefix="klet-vm-") as directory:
            return self._run(command, find_kernel(), Path(directory))

    def _run(self, command: Sequence[str], kernel: Kernel, directory: Path) -> int:
        initramfs, socket = directory / "initramfs", directory / "virtiofs"
        console, status = directory / "console", directory / "status"
        initramfs.write_bytes(_build_initramfs(kernel, command))
        accelerator = self.accelerator or choose_accelerator()
        qemu = [
            *base_command(accelerator=accelerator, cpus=self.cpus, memory=self.memory),
            *("-no-reboot", "-kernel", str(kernel.image), "-initrd", str(initramfs), "-append", _KERNEL_ARGUMENTS),
            *share_arguments("root", socket),
            *("-chardev", "stdio,id=output,signal=off", "-serial", "chardev:output"),
            *("-serial", f"file:{console}", "-serial", f"file:{status}"),
        ]
        started = time.monotonic()
        with share_directory(Path("/"), socket), running(qemu) as machine:
            try:
                machine.wait(self.timeout)
            except subprocess.TimeoutExpired:
                sys.stderr.write(f"vm: the command did not end within {self.timeout:g} s\n")
                return TIMED_OUT
        code = status.read_text().strip() if status.exists() else ""
        if self.is_verbose or not code:
            sys.stderr.write(console.read_text(errors="replace") if console.exists() else "")
            sys.stderr.write(f"vm: {accelerator} machine ran for {time.monotonic() - started:.1f} s\n")
        if not code:
            raise MachineFailed("the machine ended before the command did")
        return int(code)


def _build_initramfs(kernel: Kernel, command: Sequence[str]) -> bytes:
    """Return an archive with busybox, the modules, the first program and the command."""
    loaded = module_files(kernel.modules, _MODULES)
    init = _INIT.replace("{modules}", " ".join(path.stem for path in loaded))
    second = _SECOND_INIT.replace("{module_directory}", str(kernel.modules.resolve()))
    variables = shlex.join(f"{name}={os.environ[name]}" for name in _PASSED_ON if name in os.environ)
    place = shlex.quote(str(Path.cwd()))
    script = f"cd {place}\nexec env -i KLET_VM=1 TMPDIR=/run/tmp {variables} {shlex.join(command)}\n"
    busybox = Path(shutil.which("busybox") or "busybox").read_bytes()
    files = {
        "bin/busybox": (busybox, 0o755),
        **{f"modules/{path.name}": (path.read_bytes(), 0o644) for path in loaded},
        "init": (init.encode(), 0o755),
        "second": (second.encode(), 0o644),
        "command": (script.encode(), 0o644),
    }
    return build_archive(_DIRECTORIES, files)
