"""Makes this machine a node, step by step: packages, configuration, containerd, images, the agent.

Each step looks first and does only what is missing, so that running it again is cheap and changes nothing. A containerd
that came up without its CRI is started once more, and then explained.
"""

import hashlib
import os
import re
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Final

from klet.aio.clock import Clock
from klet.certs.maker import CertificateMaker
from klet.cli.node.daemons import AGENT, CONTAINERD, agent_service, containerd_service, daemon, run_services
from klet.cli.node.host_ledger import HostLedger
from klet.cli.node.identities import ensure_identities
from klet.cli.node.kubelet_config import CRUN, RUNC, build_klet_configuration, build_kubelet_configuration
from klet.cli.node.machine import (
    SYSCTL,
    Programs,
    find_needed_programs,
    ipv6_subnet,
    is_free,
    locate_programs,
    observe_host,
    resolv_conf,
    which,
)
from klet.cli.node.node import LocalNode, NodeError, last_lines
from klet.cli.node.own_images import build_own_images, import_missing
from klet.cli.node.packages import Install, Missing, Ready, install_commands, plan_packages
from klet.cli.node.processes import stop
from klet.cli.node.record import NodeRecord, choose_ports, read_record, write_record
from klet.cli.node.services import NodeService
from klet.cli.node.subnet import choose_subnet, parse_ipv4_routes
from klet.cli.progress import CommandProgress
from klet.cri.client import CriClient, connect
from klet.cri.errors import Code, CriError
from klet.host.cni import build_cni_list
from klet.host.containerd_config import ContainerdSettings, build_containerd_config
from klet.host.containerd_probe import find_snapshotter, has_capability
from klet.host.files import read_text, remove_tree, write_atomic, write_text
from klet.host.machine.reader import MachineReader
from klet.host.processes import run_process
from klet.host.procfs import CAP_SYS_RESOURCE
from klet.version import __version__
from klet.wire import cri_v1_pb2 as pb

INSTALL_DEADLINE = timedelta(minutes=10)
CALL_DEADLINE = timedelta(seconds=10)

IPV4_FORWARDING = "net/ipv4/ip_forward"
IPV6_FORWARDING = "net/ipv6/conf/all/forwarding"
RUNTIME_DEADLINE: Final = timedelta(seconds=60)
STOP_GRACE: Final = timedelta(seconds=20)
POLL: Final = timedelta(milliseconds=50)
LOG_END: Final = 1 << 20


class NodePreparation:
    """The steps of one `klet up`."""

    def __init__(self, *, node: LocalNode, ledger: HostLedger, progress: CommandProgress, clock: Clock) -> None:
        self._node = node
        self._ledger = ledger
        self._progress = progress
        self._clock = clock

    async def run(self, *, may_install: bool) -> NodeRecord:
        """Make the node; when it returns, containerd and the agent run."""
        programs = await self._packages(may_install=may_install)
        with self._progress.step("Configuration") as step:
            record = self._record()
            await self._host(record)
            await ensure_identities(
                self._node.paths.pki, node=self._node.names.network, maker=CertificateMaker(clock=self._clock)
            )
            containerd = self._configure_containerd(programs, record)
            agent = self._configure_agent(programs, record)
            step.note(f"pods get addresses from {' and '.join(str(subnet) for subnet in record.subnets())}")
        paths = self._node.paths
        with self._progress.step("containerd") as step:
            await run_services(self._node, self._without_new_agent(containerd, agent), clock=self._clock)
            step.note(await until_runtime_ready(self._node, clock=self._clock))
        with self._progress.step("Images") as step:
            images = await build_own_images(programs.busybox)
            async with connect(runtime_endpoint=str(paths.containerd_socket), timeout=CALL_DEADLINE) as cri:
                imported = await import_missing(
                    images,
                    store=cri,
                    ctr=str(programs.ctr),
                    address=str(paths.containerd_socket),
                    scratch=paths.images,
                    clock=self._clock,
                )
            step.note(f"imported {', '.join(imported)}" if imported else "there already")
        await run_services(self._node, (containerd, agent), clock=self._clock)
        return record

    async def _packages(self, *, may_install: bool) -> Programs:
        with self._progress.step("Packages") as step:
            plan = plan_packages(
                find_needed_programs(),
                may_install=may_install,
                has_apt=which("apt-get") is not None,
                is_root=os.geteuid() == 0,
            )
            match plan:
                case Ready():
                    step.note("all there")
                case Missing(packages, reason):
                    wanted = " ".join(packages)
                    raise NodeError(f"missing packages: {wanted} ({reason}; Debian: apt-get install {wanted})")
                case Install(packages):
                    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
                    for command in install_commands(packages):
                        result = await run_process(command, timeout=INSTALL_DEADLINE, env=environment)
                        result.check()
                    step.note(f"installed {' '.join(packages)}")
        return locate_programs()

    def _record(self) -> NodeRecord:
        paths, names = self._node.paths, self._node.names
        self._forget_earlier_boot()
        for directory in (paths.configuration, paths.cni_configuration, paths.manifests, paths.logs, paths.pids):
            directory.mkdir(parents=True, exist_ok=True)
        for directory in (paths.pod_logs, paths.kubelet_root, paths.containerd_root, paths.images):
            directory.mkdir(parents=True, exist_ok=True)
        record = read_record(paths.record)
        if record is not None:
            return record
        free = {port: is_free(port) for port in range(names.port, names.port + 40)}
        free |= {names.healthz_port: is_free(names.healthz_port)}
        ports = choose_ports(names.port, names.healthz_port, is_free=free, is_default=self._node.is_default)
        if ports is None:
            raise NodeError(
                f"ports {names.port} and {names.healthz_port} are not both free: another kubelet may run here; "
                "stop it, or give klet a --state-dir of its own, which comes with other ports"
            )
        subnet = choose_subnet(parse_ipv4_routes(read_text(Path("/proc/net/route"))), tag=names.tag)
        if subnet is None:
            raise NodeError("no subnet is free for the pods: routes lead to every address that klet would choose")
        record = NodeRecord(subnet=str(subnet), subnet6=ipv6_subnet(names.tag), port=ports[0], healthz_port=ports[1])
        write_record(paths.record, record)
        return record

    def _forget_earlier_boot(self) -> None:
        """Remove run files from before a reboot: their processes, mounts and leases are gone."""
        note = self._node.paths.run / "boot"
        now = MachineReader().boot_id()
        if note.exists() and note.read_text() != now:
            remove_tree(self._node.paths.run)
        note.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(note, now.encode())

    async def _host(self, record: NodeRecord) -> None:
        """Write down how the host is before the first node changes it, then let it forward what pods send."""
        switches = (IPV4_FORWARDING, *((IPV6_FORWARDING,) if record.subnet6 else ()))
        before = await observe_host(switches)
        self._ledger.join(self._node.names.network, state=self._node.paths.state, observe=lambda: before)
        for switch in switches:
            if before.switches[switch] == "0":
                write_text(SYSCTL / switch, "1")

    def _configure_containerd(self, programs: Programs, record: NodeRecord) -> NodeService:
        paths, names = self._node.paths, self._node.names
        network = build_cni_list(
            name=names.network, bridge=names.bridge, subnets=record.subnets(), data_dir=str(paths.cni_data)
        )
        _write_if_changed(paths.cni_configuration / "10-klet.conflist", network)
        configuration = build_containerd_config(
            ContainerdSettings(
                root=paths.containerd_root,
                state=paths.containerd_state,
                socket=paths.containerd_socket,
                cni_conf_dir=paths.cni_configuration,
                cni_bin_dir=programs.cni,
                snapshotter=find_snapshotter(paths.state),
                restrict_oom_score_adj=not has_capability(CAP_SYS_RESOURCE),
                runtimes=_more_runtimes(programs),
                runtime_root=paths.runc_root,
            )
        )
        _write_if_changed(paths.containerd_configuration, configuration)
        return containerd_service(self._node, program=str(programs.containerd), revision=_revision(configuration))

    def _configure_agent(self, programs: Programs, record: NodeRecord) -> NodeService:
        paths = self._node.paths
        configuration = build_kubelet_configuration(
            paths=paths, names=self._node.names, record=record, resolv_conf=resolv_conf()
        )
        _write_if_changed(paths.kubelet_configuration, configuration)
        own = build_klet_configuration(handlers=(RUNC, *_more_runtimes(programs)))
        _write_if_changed(paths.klet_configuration, own)
        return agent_service(self._node, revision=_revision(configuration + own + __version__))

    def _without_new_agent(self, containerd: NodeService, agent: NodeService) -> Sequence[NodeService]:
        """Return the services without an agent that is new and has to wait for the images; one that runs stays."""
        return (containerd,) if daemon(self._node, AGENT) is None else (containerd, agent)


def _more_runtimes(programs: Programs) -> dict[str, str]:
    """Return binaries by handler, besides runc."""
    return {} if programs.crun is None else {CRUN: str(programs.crun)}


def _write_if_changed(path: Path, text: str) -> None:
    if not path.exists() or path.read_text() != text:
        write_atomic(path, text.encode(), mode=0o600)


def _revision(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


async def until_runtime_ready(node: LocalNode, *, clock: Clock) -> str:
    """Wait until containerd answers and its network is ready; returns what it calls itself."""
    began = clock.monotonic()
    was_restarted = False
    log = node.paths.logs / "containerd.log"
    while True:
        try:
            async with connect(runtime_endpoint=str(node.paths.containerd_socket), timeout=CALL_DEADLINE) as cri:
                problem = await _runtime_problem(cri)
                if not problem:
                    version = await cri.version(pb.VersionRequest())
                    return f"{version.runtime_name} {version.runtime_version}"
        except CriError as error:
            problem = str(error)
            # containerd loads its plugins before it listens: one that is not there now never will be.
            if error.code is Code.UNIMPLEMENTED:
                if was_restarted:
                    why = (
                        find_plugin_error(_end_of(node)) or f"{log} does not say why; it ends with:\n{last_lines(log)}"
                    )
                    raise NodeError(f"containerd runs without its CRI plugin: {why} (log: {log})") from error
                was_restarted = True
                await _restart(node, clock=clock)
        if clock.monotonic() - began > RUNTIME_DEADLINE.total_seconds():
            raise NodeError(f"containerd is not ready: {problem}; {log} ends with:\n{last_lines(log)}")
        await clock.sleep(POLL)


def find_plugin_error(log: str) -> str | None:
    """Return why containerd could not load its CRI plugin, from the newest such line of its log; None without one."""
    found = _FAILED.findall(log)
    if found:
        return str(found[-1]).replace('\\"', '"')
    return "its configuration disables it" if _SKIPPED.search(log) else None


_CRI_PLUGIN: Final = r"io\.containerd\.(?:grpc\.v1\.cri|cri\.v1\.\w+)"
_FAILED: Final = re.compile(rf'msg="failed to load plugin[^=]*{_CRI_PLUGIN}[^=]*" error="((?:[^"\\]|\\.)*)"')
_SKIPPED: Final = re.compile(rf'msg="skip(?:ping)? loading plugin[^=]*{_CRI_PLUGIN}')


async def _restart(node: LocalNode, *, clock: Clock) -> None:
    """End containerd, so that its supervisor starts it again: what kept the plugin away may be over. Pods live on."""
    process = daemon(node, CONTAINERD)
    if process is not None:
        await stop(process, grace=STOP_GRACE, clock=clock)


def _end_of(node: LocalNode) -> str:
    try:
        with open(node.paths.logs / "containerd.log", "rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - LOG_END))
            return file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""


async def _runtime_problem(cri: CriClient) -> str:
    answer = await cri.status(pb.StatusRequest())
    problems = [f"{c.type} is false: {c.reason} {c.message}" for c in answer.status.conditions if not c.status]
    return "; ".join(problems)
