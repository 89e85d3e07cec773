"""A private containerd for tests: own directories, socket, bridge and images, and nothing left behind."""

import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from datetime import timedelta
from hashlib import sha256
from ipaddress import IPv4Network
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from klet.aio.clock import Clock, SystemClock
from klet.cri.client import CriClient, connect
from klet.cri.errors import CriError, CriNotFound
from klet.errors import KletError
from klet.host.cni import build_cni_list
from klet.host.containerd_config import PAUSE_IMAGE, ContainerdSettings, build_containerd_config
from klet.host.containerd_probe import find_snapshotter, has_capability
from klet.host.files import read_bytes
from klet.host.images import BUSYBOX_IMAGE, build_busybox_image, build_pause_image, import_image, read_applets
from klet.host.procfs import CAP_SYS_RESOURCE
from klet.testing.leftovers import remove_everything, write_marker
from klet.wire import cri_v1_pb2 as pb

REQUEST_TIMEOUT = timedelta(minutes=2)
_CNI_DIRECTORIES = ("/usr/lib/cni", "/opt/cni/bin")
_CNI_PLUGINS = "CNI plugins"
# What must be installed, and the Debian package that brings it.
_PACKAGES = {
    "containerd": "containerd",
    "containerd-shim-runc-v2": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "ip": "iproute2",
    _CNI_PLUGINS: "containernetworking-plugins",
}
_START_LIMIT = timedelta(seconds=30)
_POLL = timedelta(milliseconds=20)
_REMOVAL_ATTEMPTS = 200
UNIFIED = Path("/sys/fs/cgroup/unified")

# The mount disappears for crun alone: in a mount namespace of its own, from which nothing comes back.
_HIDING = """\
#!/bin/sh
exec unshare --mount --propagation slave sh -c 'umount {unified} && exec "$0" "$@"' {crun} "$@"
"""


class ContainerdFailed(KletError):
    """The private containerd did not come up."""


class PrivateContainerd(Struct, frozen=True):
    """A running containerd. Clients connect in the event loop that uses them."""

    directory: Path
    settings: ContainerdSettings
    process: "subprocess.Popen[bytes]"
    bridge: str
    subnet: IPv4Network
    cgroup_parent: str
    """A cgroup of its own for tests that name none; removed with the containerd."""
    path: str
    """Where the programs are looked for."""

    @property
    def endpoint(self) -> str:
        return f"unix://{self.settings.socket}"

    @property
    def log(self) -> str:
        return (self.directory / "containerd.log").read_text(errors="replace")


def why_impossible() -> str:
    """Return what this machine lacks for a private containerd, and how to get it; empty if nothing."""
    return describe_missing(
        is_installed=lambda name: bool(_cni_directory() if name == _CNI_PLUGINS else shutil.which(name)),
        is_root=os.geteuid() == 0,
    )


def describe_missing(*, is_installed: Callable[[str], bool], is_root: bool) -> str:
    if not is_root:
        return "needs root: run the tests as root"
    missing = [name for name in _PACKAGES if not is_installed(name)]
    packages = dict.fromkeys(_PACKAGES[name] for name in missing)
    return f"not installed: {', '.join(missing)}: apt-get install {' '.join(packages)}" if missing else ""


@asynccontextmanager
async def run_containerd(
    directory: Path,
    *,
    programs: Path | None = None,
    disabled_plugins: tuple[str, ...] = (),
    root: Path | None = None,
    clock: Clock | None = None,
) -> AsyncIterator[PrivateContainerd]:
    """Run a containerd in a directory that must not exist yet, with the pause image and one of busybox.

    Its programs are the machine's, or those of a directory with another release; images may be at a `root` elsewhere,
    which stays.
    """
    time = clock or SystemClock()
    daemon = start_containerd(directory, programs=programs, disabled_plugins=disabled_plugins, root=root)
    try:
        async with connect_ready(daemon, clock=time) as client:
            for name, data in (await _images()).items():
                await add_image(daemon, client, name=name, data=data, clock=time)
        yield daemon
    finally:
        await stop_containerd(daemon, clock=time)


def start_containerd(
    directory: Path,
    *,
    programs: Path | None = None,
    disabled_plugins: tuple[str, ...] = (),
    root: Path | None = None,
) -> PrivateContainerd:
    """Write the configuration and start the daemon; it may not answer yet."""
    directory.mkdir(parents=True)
    path = os.pathsep.join(filter(None, (str(programs or ""), os.environ.get("PATH", os.defpath))))
    tag = sha256(str(directory).encode()).hexdigest()
    bridge, cgroup = f"klt{tag[:8]}", f"klet-test-{tag[:8]}"
    subnet = IPv4Network((10 << 24 | 128 << 16 | (int(tag[:8], 16) & 0x7FFF) << 8, 24))
    write_marker(directory, bridge=bridge, cgroup=cgroup)
    cni_directory = _cni_directory()
    if cni_directory is None:
        raise ContainerdFailed(why_impossible())
    settings = ContainerdSettings(
        root=root or directory / "root",
        state=directory / "state",
        socket=directory / "containerd.sock",
        cni_conf_dir=directory / "net.d",
        cni_bin_dir=cni_directory,
        snapshotter=find_snapshotter(root or directory),
        restrict_oom_score_adj=not has_capability(CAP_SYS_RESOURCE),
        stats_period=1,
        runtime_root=directory / "state" / "runc",
        runtimes={"crun": crun} if (crun := find_crun(directory, path)) else None,
        disabled_plugins=disabled_plugins,
    )
    settings.cni_conf_dir.mkdir()
    network = build_cni_list(
        name=f"klet-{tag[:8]}", bridge=bridge, subnets=[subnet], data_dir=str(directory / "leases"), masquerade=False
    )
    (settings.cni_conf_dir / "10-klet.conflist").write_text(network)
    config = directory / "config.toml"
    config.write_text(build_containerd_config(settings))
    return PrivateContainerd(
        directory=directory,
        settings=settings,
        process=_spawn(config, directory / "containerd.log", path),
        bridge=bridge,
        subnet=subnet,
        cgroup_parent=f"/{cgroup}",
        path=path,
    )


@asynccontextmanager
async def restart_containerd(daemon: PrivateContainerd, *, clock: Clock) -> AsyncIterator[CriClient]:
    """Kill the daemon and start it again on the same directories, for the time of the block; pods and shims live on."""
    daemon.process.kill()
    daemon.process.wait()
    process = _spawn(daemon.directory / "config.toml", daemon.directory / "containerd.log", daemon.path)
    again = replace(daemon, process=process)
    try:
        async with connect_ready(again, clock=clock) as client:
            yield client
    finally:
        await _end(again, clock=clock)


@asynccontextmanager
async def connect_ready(daemon: PrivateContainerd, *, clock: Clock) -> AsyncIterator[CriClient]:
    """Yield a client of the daemon, as soon as its runtime and its network are ready."""
    give_up = clock.now() + _START_LIMIT
    async with AsyncExitStack() as stack:
        while True:
            _check_progress(daemon, late=clock.now() > give_up)
            try:
                client = await stack.enter_async_context(
                    connect(runtime_endpoint=daemon.endpoint, timeout=REQUEST_TIMEOUT)
                )
                if await _is_ready(client):
                    break
            except CriError:  # the socket comes before the CRI, and the CRI before its network
                pass
            await stack.aclose()
            await clock.sleep(_POLL)
        yield client


async def add_image(daemon: PrivateContainerd, client: CriClient, *, name: str, data: bytes, clock: Clock) -> None:
    """Import an image archive and wait until the CRI shows it."""
    archive = daemon.directory / "image.tar"
    archive.write_bytes(data)
    await import_image(
        archive,
        address=str(daemon.settings.socket),
        ctr=shutil.which("ctr", path=daemon.path) or "ctr",
        snapshotter=daemon.settings.snapshotter,
    )
    archive.unlink()
    request = pb.ImageStatusRequest(image=pb.ImageSpec(image=name))
    give_up = clock.now() + _START_LIMIT
    while not (await client.image_status(request)).HasField("image"):
        _check_progress(daemon, late=clock.now() > give_up)
        await clock.sleep(_POLL)


async def remove_pods(client: CriClient, *, clock: Clock) -> None:
    """Stop and remove every sandbox with its containers."""
    for container in (await client.list_containers(pb.ListContainersRequest())).containers:
        # It may be ending by itself or because a killed agent asked for it. A failure that stays shows below.
        with suppress(CriError):
            await client.stop_container(pb.StopContainerRequest(container_id=container.id, timeout=0))
    for sandbox in (await client.list_pod_sandbox(pb.ListPodSandboxRequest())).items:
        await _remove_sandbox(client, sandbox.id, clock=clock)


async def stop_containerd(daemon: PrivateContainerd, *, clock: Clock) -> None:
    """Remove all pods, end the daemon and whatever it made; a daemon that does not answer is cleaned up after."""
    await _end(daemon, clock=clock)
    remove_everything(daemon.directory)


async def _end(daemon: PrivateContainerd, *, clock: Clock) -> None:
    try:
        async with connect(runtime_endpoint=daemon.endpoint, timeout=timedelta(seconds=20)) as client:
            await remove_pods(client, clock=clock)
    except CriError:
        daemon.process.kill()
    daemon.process.terminate()
    give_up = clock.now() + timedelta(seconds=10)
    while daemon.process.poll() is None and clock.now() < give_up:
        await clock.sleep(_POLL)
    daemon.process.kill()
    daemon.process.wait()


async def _remove_sandbox(client: CriClient, sandbox_id: str, *, clock: Clock) -> None:
    for attempts_left in reversed(range(_REMOVAL_ATTEMPTS)):
        try:
            await client.stop_pod_sandbox(pb.StopPodSandboxRequest(pod_sandbox_id=sandbox_id))
            await client.remove_pod_sandbox(pb.RemovePodSandboxRequest(pod_sandbox_id=sandbox_id))
        except CriNotFound:
            return
        except CriError:  # containerd fails to stop what is just ending by itself ("ttrpc: closed")
            if not attempts_left:
                raise
            await clock.sleep(_POLL)
        else:
            return


async def _is_ready(client: CriClient) -> bool:
    status = (await client.status(pb.StatusRequest())).status
    return all(condition.status for condition in status.conditions)


def _check_progress(daemon: PrivateContainerd, *, late: bool) -> None:
    if daemon.process.poll() is not None:
        message = f"containerd ended with {daemon.process.returncode}:\n{daemon.log[-4000:]}"
        raise ContainerdFailed(message)
    if late:
        message = f"containerd was not ready in {_START_LIMIT.total_seconds():g} s:\n{daemon.log[-4000:]}"
        raise ContainerdFailed(message)


async def _images() -> Mapping[str, bytes]:
    images = {PAUSE_IMAGE: build_pause_image()}
    if busybox := shutil.which("busybox"):
        path = Path(busybox)
        images[BUSYBOX_IMAGE] = build_busybox_image(binary=read_bytes(path), applets=await read_applets(path))
    return images


def _cni_directory() -> Path | None:
    return next((path for path in map(Path, _CNI_DIRECTORIES) if (path / "bridge").exists()), None)


def _spawn(config: Path, log: Path, path: str) -> "subprocess.Popen[bytes]":
    with log.open("ab") as output:
        return subprocess.Popen(
            [shutil.which("containerd", path=path) or "containerd", "--config", str(config)],
            env=os.environ | {"PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )


def find_crun(directory: Path, path: str, *, unified: Path = UNIFIED) -> str | None:
    """Return the program to give to containerd; None if the machine has no crun.

    crun refuses a machine where version 2 of cgroups has a controller beside version 1. There it gets a wrapper, in
    the directory, that hides version 2 from it.
    """
    crun = shutil.which("crun", path=path)
    if crun is None or not has_mixed_controllers(unified):
        return crun
    wrapper = directory / "crun"
    wrapper.write_text(_HIDING.format(unified=unified, crun=crun))
    wrapper.chmod(0o755)
    return str(wrapper)


def has_mixed_controllers(unified: Path = UNIFIED) -> bool:
    controllers = unified / "cgroup.controllers"
    return controllers.exists() and bool(controllers.read_text().strip())
