"""The disk of the whole machine: a Debian of this machine's release with systemd, containerd and klet's dependencies.

Built with mmdebstrap and chroot, without booting anything, into a directory of the cache that is named after the recipe
and the locked packages. The recipe is this module: after a change of it the disk is built again.
"""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from hashlib import sha256
from ipaddress import IPv4Network
from pathlib import Path
from typing import Final

from msgspec import Struct

from klet.host.cni import build_cni_list
from klet.host.images import BUSYBOX_IMAGE, build_busybox_image, build_pause_image, read_applets
from klet.testing.debian_packages import KEYRING, alone, find_cache, find_mirror, own_suite, run_tool
from klet.testing.vm.qemu import MachineFailed, check_programs

REPOSITORY: Final = Path(__file__).resolve().parents[4]
NEEDED: Final = {"mmdebstrap": "mmdebstrap", "mkfs.ext4": "e2fsprogs", "ssh-keygen": "openssh-client"}
HOST_NAME: Final = "klet-machine"
TREE: Final = "/klet"
"""Where the machine sees the checkout."""
PROGRAMS: Final = "/opt/upstream"
"""Where it sees upstream's programs."""
VENV: Final = "/opt/klet"
"""Where klet is installed; a disk of its own, since it changes more often than the rest."""
TEST_PACKAGES: Final = "/opt/klet-tests"
"""For PYTHONPATH: pytest and its plugins."""
PAUSE_IMAGE: Final = "registry.k8s.io/pause:3.6"
"""The default of the containerd that Debian 12 has."""

_PACKAGES: Final = (
    *("systemd-sysv", "dbus", "udev", "kmod", "linux-image-cloud-amd64", "openssh-server", "ca-certificates"),
    *("containerd", "runc", "containernetworking-plugins", "iproute2", "iptables", "nftables", "conntrack", "ethtool"),
    *("python3", "python3-venv", "procps", "util-linux", "mount", "busybox-static", "e2fsprogs", "socat", "curl"),
    *("xfsprogs", "quota"),
)
_TEST_PACKAGES: Final = (
    *("pytest", "pytest-asyncio", "pytest-xdist", "hypothesis"),
    *("execnet", "iniconfig", "packaging", "pluggy", "pygments", "sortedcontainers"),
)
# What a node of a test has no use for, and what costs seconds of each boot where the processor is emulated.
_MASKED: Final = (
    *(
        "apt-daily.timer",
        "apt-daily-upgrade.timer",
        "dpkg-db-backup.timer",
        "e2scrub_all.timer",
        "e2scrub_reap.service",
    ),
    *("fstrim.timer", "systemd-pstore.service", "getty@tty1.service", "modprobe@efi_pstore.service"),
)
_DISK_SIZE: Final = "8G"
_KLET_DISK_SIZE: Final = "1G"
_CONTAINERD: Final = """\
version = 2

[plugins]
  [plugins."io.containerd.grpc.v1.cri"]
    [plugins."io.containerd.grpc.v1.cri".cni]
      bin_dir = "/usr/lib/cni"
      conf_dir = "/etc/cni/net.d"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = true
  [plugins."io.containerd.internal.v1.opt"]
    path = "/var/lib/containerd/opt"
"""
_IMPORT_UNIT: Final = """\
[Unit]
Description=Import the images of tests
After=containerd.service
Requires=containerd.service
ConditionPathExists=!/var/lib/test-images/imported

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'for image in /var/lib/test-images/*.tar; do ctr -n k8s.io images import $image || exit 1; done'
ExecStartPost=/usr/bin/touch /var/lib/test-images/imported

[Install]
WantedBy=multi-user.target
"""
_FSTAB: Final = f"""\
LABEL=root / ext4 defaults 0 1
LABEL=klet {VENV} ext4 ro,nofail,x-systemd.device-timeout=60 0 0
tree {TREE} virtiofs ro,nofail 0 0
programs {PROGRAMS} virtiofs ro,nofail 0 0
"""
_INITRAMFS_MODULES: Final = "virtio_pci\nvirtio_blk\next4\n"


class DebianDisk(Struct, frozen=True, kw_only=True):
    """The files of a built machine, all below one directory of the cache."""

    directory: Path

    @property
    def root(self) -> Path:
        """The tree that the disk was made from; klet's wheel is installed in it."""
        return self.directory / "root"

    @property
    def image(self) -> Path:
        return self.directory / "disk.img"

    @property
    def kernel(self) -> Path:
        return self.directory / "vmlinuz"

    @property
    def initrd(self) -> Path:
        return self.directory / "initrd.img"

    @property
    def key(self) -> Path:
        """Of the user that logs in."""
        return self.directory / "key"

    @property
    def known_hosts(self) -> Path:
        return self.directory / "known_hosts"

    @property
    def is_built(self) -> bool:
        return self.image.exists()


def find_disk() -> DebianDisk:
    """Return the disk of this checkout's recipe, built or not."""
    recipe = sha256(Path(__file__).read_bytes())
    for name in ("requirements.lock", "requirements-dev.lock"):
        recipe.update((REPOSITORY / name).read_bytes())
    recipe.update(own_suite().encode())
    return DebianDisk(directory=_cache() / recipe.hexdigest()[:16])


def build_disk(say: Callable[[str], None]) -> DebianDisk:
    """Build the disk if it is not there, and remove those of earlier recipes; raises KletError."""
    disk = find_disk()
    cache = _cache()
    cache.mkdir(parents=True, exist_ok=True)
    with alone(cache / "lock"):
        if not disk.is_built:
            check_programs(NEEDED)
            for old in cache.iterdir():
                if old.is_dir():
                    shutil.rmtree(old)
            _build(disk, say)
    return disk


def install_klet(disk: DebianDisk, say: Callable[[str], None]) -> Path:
    """Return a disk with klet installed from the wheel of this checkout, made if the checkout has changed."""
    stamp = _source_hash()
    image = disk.directory / f"klet-{stamp}.img"
    with alone(_cache() / "lock"):
        if image.exists():
            return image
        say("building klet's wheel, and a disk with it")
        wheels = disk.root / "wheels"
        shutil.rmtree(wheels, ignore_errors=True)
        _pip("wheel", "--no-deps", "-w", str(wheels), str(REPOSITORY))
        [wheel] = wheels.glob("klet-*.whl")
        _chroot(
            disk.root,
            *(f"{VENV}/bin/pip", "install", "--quiet", "--no-index", "--no-deps", "--force-reinstall"),
            f"/wheels/{wheel.name}",
        )
        for old in disk.directory.glob("klet-*.img"):
            # A machine that runs has it open, and keeps what it sees.
            old.unlink()
        _make_file_system(disk.root / VENV.lstrip("/"), image, label="klet", size=_KLET_DISK_SIZE)
    return image


def cache_size() -> int:
    """Return how many bytes of disk the machine's files take."""
    return sum(path.lstat().st_blocks * 512 for path in _cache().rglob("*") if not path.is_symlink())


def _cache() -> Path:
    return find_cache() / "machine"


def _build(disk: DebianDisk, say: Callable[[str], None]) -> None:
    disk.directory.mkdir(parents=True)
    root = disk.root
    say(f"building a Debian {own_suite()} with systemd, in some minutes")
    _bootstrap(root)
    say("installing the packages that klet and its tests need")
    _install_python_packages(root)
    _write_images(root)
    _write_files(disk)
    for units in ("systemd-networkd.service", "containerd.service", "ssh.service", "test-images.service"):
        _chroot(root, "systemctl", "--quiet", "enable", units)
    _chroot(root, "systemctl", "--quiet", "mask", *_MASKED)
    _chroot(root, "update-initramfs", "-u")
    shutil.copy(next(root.glob("boot/vmlinuz-*")), disk.kernel)
    shutil.copy(next(root.glob("boot/initrd.img-*")), disk.initrd)
    say("making the disk")
    venv = root / VENV.lstrip("/")
    aside = disk.directory / "venv"
    venv.rename(aside)
    venv.mkdir()
    unfinished = disk.image.with_suffix(".new")
    _make_file_system(root, unfinished, label="root", size=_DISK_SIZE)
    venv.rmdir()
    aside.rename(venv)
    unfinished.rename(disk.image)


def _bootstrap(root: Path) -> None:
    signed = f"[signed-by={KEYRING}] " if KEYRING.exists() else ""
    source = f"deb {signed}{find_mirror()} {own_suite()} main"
    run_tool(
        *("mmdebstrap", "--quiet", "--variant=minbase", '--aptopt=Acquire::Languages "none"'),
        *(f"--include={','.join(_PACKAGES)}", own_suite(), str(root), source),
        environment={**os.environ, "LC_ALL": "C"},
        patience=1200,
    )


def _install_python_packages(root: Path) -> None:
    """Make the venv with the locked packages, without klet itself, and a directory of those that tests need."""
    version = next(root.glob("usr/bin/python3.*[0-9]")).name.removeprefix("python")
    wheels = root / "wheels"
    download = ("download", "--no-deps", "--only-binary=:all:", f"--python-version={version}", "-d", str(wheels))
    platforms = [f"--platform=manylinux_2_{number}_x86_64" for number in range(17, 37)]
    own, tests = wheels / "own", wheels / "tests"
    pins = read_pins(REPOSITORY / "requirements-dev.lock")
    wanted = root.parent / "test-requirements.txt"
    wanted.write_text("".join(pins[name] for name in _TEST_PACKAGES))
    for place, locked in ((own, REPOSITORY / "requirements.lock"), (tests, wanted)):
        _pip(*download[:-1], str(place), *platforms, "--require-hashes", "-r", str(locked))
    _chroot(root, "python3", "-m", "venv", VENV)
    install = (f"{VENV}/bin/pip", "install", "--quiet", "--no-index", "--no-deps")
    _chroot(root, *install, *(f"/wheels/own/{path.name}" for path in own.iterdir()))
    _chroot(root, *install, "--target", TEST_PACKAGES, *(f"/wheels/tests/{path.name}" for path in tests.iterdir()))
    shutil.rmtree(wheels)


def _write_images(root: Path) -> None:
    """Put the images of tests in place; the machine imports them when it first starts, since it can pull none."""
    busybox = root / "usr/bin/busybox"
    if not busybox.exists():
        busybox = root / "bin/busybox"
    applets = asyncio.run(read_applets(busybox))
    images = root / "var/lib/test-images"
    images.mkdir()
    (images / "busybox.tar").write_bytes(build_busybox_image(binary=busybox.read_bytes(), applets=applets))
    (images / "pause.tar").write_bytes(build_pause_image(name=PAUSE_IMAGE))


def _write_files(disk: DebianDisk) -> None:
    root = disk.root
    run_tool("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "klet-machine", "-f", str(disk.key))
    host_key = (root / "etc/ssh/ssh_host_ed25519_key.pub").read_text().split()
    disk.known_hosts.write_text(f"{HOST_NAME} {host_key[0]} {host_key[1]}\n")
    network = build_cni_list(name="pods", bridge="cni0", subnets=[IPv4Network("10.88.0.0/16")])
    files: Mapping[str, str] = {
        "etc/hostname": f"{HOST_NAME}\n",
        "etc/hosts": f"127.0.0.1 localhost\n127.0.1.1 {HOST_NAME}\n::1 localhost\n",
        # A name of its own would make systemd take each boot of a fresh disk for the first one, with much to set up.
        "etc/machine-id": f"{sha256(str(disk.directory).encode()).hexdigest()[:32]}\n",
        "etc/fstab": _FSTAB,
        "etc/systemd/network/10-all.network": "[Match]\nName=en* eth*\n\n[Network]\nDHCP=yes\n",
        "etc/systemd/system/test-images.service": _IMPORT_UNIT,
        "etc/systemd/journald.conf.d/persistent.conf": "[Journal]\nStorage=persistent\n",
        "etc/ssh/sshd_config.d/tests.conf": "PermitRootLogin prohibit-password\nUseDNS no\nMaxStartups 100\n",
        "etc/containerd/config.toml": _CONTAINERD,
        "etc/cni/net.d/10-pods.conflist": network,
        "etc/modules-load.d/kubernetes.conf": "overlay\nbr_netfilter\n",
        "etc/sysctl.d/kubernetes.conf": "net.ipv4.ip_forward = 1\nnet.bridge.bridge-nf-call-iptables = 1\n",
        "etc/initramfs-tools/conf.d/small": "MODULES=list\nCOMPRESS=lz4\n",
        "etc/initramfs-tools/modules": _INITRAMFS_MODULES,
        "etc/klet-machine.json": json.dumps({"busyboxImage": BUSYBOX_IMAGE}) + "\n",
        "root/.ssh/authorized_keys": disk.key.with_suffix(".pub").read_text(),
    }
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (root / "root/.ssh").chmod(0o700)
    for place in (TREE, PROGRAMS):
        (root / place.lstrip("/")).mkdir()


def read_pins(lock: Path) -> dict[str, str]:
    """Return the lines of a lock file by package: a package begins a line, what belongs to it is indented."""
    pins: dict[str, str] = {}
    name = ""
    for line in lock.read_text().splitlines(keepends=True):
        if line[:1].isalnum():
            name = line.partition("==")[0].strip().lower()
            pins[name] = ""
        if name:
            pins[name] += line
    return pins


def _source_hash() -> str:
    digest = sha256()
    # What builds and drives the machine has no use inside of it.
    outside = Path(__file__).parent
    for path in sorted([*(REPOSITORY / "src/klet").rglob("*"), REPOSITORY / "pyproject.toml"]):
        if path.is_file() and path.suffix != ".pyc" and path.parent != outside:
            digest.update(str(path.relative_to(REPOSITORY)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _make_file_system(source: Path, image: Path, *, label: str, size: str) -> None:
    image.unlink(missing_ok=True)
    run_tool("mkfs.ext4", "-q", "-L", label, "-d", str(source), str(image), size)


def _chroot(root: Path, *command: str) -> None:
    # The mounts are in a namespace of this one process, so that nothing stays mounted whatever happens.
    script = 'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && exec chroot "$0" "$@"'
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "HOME": "/root"}
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, str(root), *command],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise MachineFailed(f"{command[0]} in {root} failed: {(done.stderr or done.stdout).strip()[-1000:]}")


def _pip(*arguments: str) -> None:
    command = (sys.executable, "-m", "pip", arguments[0], "--quiet", "--no-input", "--disable-pip-version-check")
    run_tool(*command, *arguments[1:], patience=600)
