"""Makes this machine a node, step by step: packages, configuration, containerd, images, the agent.

Each step looks first and does only what is missing, so that running it again is cheap and changes nothing.
"""

import hashlib
import os
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path

from msgspec import Struct

from klet.aio.clock import Clock
from klet.certs.maker import CertificateMaker
from klet.cli.node.daemons import AGENT, agent_service, containerd_service, daemon, run_services
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
from klet.cli.node.node import LocalNode, NodeError
from klet.cli.node.own_images import build_own_images, import_missing
from klet.cli.node.packages import Install, Missing, Ready, install_commands, plan_packages
from klet.cli.node.record import NodeRecord, choose_ports, read_record, write_record
from klet.cli.node.runtime_ready import restart_supervised, until_runtime_ready
from klet.cli.node.services import NodeService
from klet.cli.node.subnet import choose_subnet, parse_ipv4_routes
from klet.cli.progress import CommandProgress
from klet.cri.client import connect
from klet.host.cni import build_cni_list
from klet.host.containerd_config import ContainerdSettings, build_containerd_config
from klet.host.containerd_probe import find_snapshotter, has_capability
from klet.host.files import read_text, remove_tree, write_atomic, write_text
from klet.host.machine.reader import MachineReader
from klet.host.processes import run_process
from klet.host.procfs import CAP_SYS_RESOURCE
from klet.version import __version__

INSTALL_DEADLINE = timedelta(minutes=10)
CALL_DEADLINE = timedelta(seconds=10)

IPV4_FORWARDING = "net/ipv4/ip_forward"
IPV6_FORWARDING = "net/ipv6/conf/all/forwarding"


class ConfiguredNode(Struct, frozen=True, kw_only=True):
    """A node that is ready to be started."""

    record: NodeRecord
    containerd: NodeService
    agent: NodeService


class NodePreparation:
    """The steps of one `klet up`."""

    def __init__(self, *, node: LocalNode, ledger: HostLedger, progress: CommandProgress, clock: Clock) -> None:
        self._node = node
        self._ledger = ledger
        self._progress = progress
        self._clock = clock

    async def run(self, *, may_install: bool) -> NodeRecord:
        """Make the node and run it; when it returns, containerd and the agent run under a supervisor."""
        programs = await self.find_packages(may_install=may_install)
        configured = await self.configure(programs)
        containerd, agent = configured.containerd, configured.agent
        with self._progress.step("containerd") as step:
            await run_services(self._node, self._without_new_agent(containerd, agent), clock=self._clock)
            restart = partial(restart_supervised, self._node, clock=self._clock)
            step.note(await until_runtime_ready(self._node, clock=self._clock, restart=restart))
        await self.import_images(programs)
        await run_services(self._node, (containerd, agent), clock=self._clock)
        return configured.record

    async def configure(self, programs: Programs) -> ConfiguredNode:
        """Make what the daemons need before they start: directories, also those that a reboot clears, and files."""
        with self._progress.step("Configuration") as step:
            record = self._record()
            await self._host(record)
            await ensure_identities(
                self._node.paths.pki, node=self._node.names.network, maker=CertificateMaker(clock=self._clock)
            )
            containerd = self._configure_containerd(programs, record)
            agent = self._configure_agent(programs, record)
            step.note(f"pods get addresses from {' and '.join(str(subnet) for subnet in record.subnets())}")
        return ConfiguredNode(record=record, containerd=containerd, agent=agent)

    async def import_images(self, programs: Programs) -> None:
        """Give a containerd that is ready the images that need no registry."""
        paths = self._node.paths
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

    async def find_packages(self, *, may_install: bool) -> Programs:
        """Install the packages that are missing, if that is allowed; return where their programs are."""
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
        forget_earlier_boot(self._node)
        for directory in (
            paths.configuration,
            paths.cni_configuration,
            paths.registries,
            paths.manifests,
            paths.logs,
            paths.pids,
        ):
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
                registry_dir=paths.registries,
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


def forget_earlier_boot(node: LocalNode) -> None:
    """Remove run files from before a reboot: their processes, mounts and leases are gone."""
    if not is_of_this_boot(node):
        remove_tree(node.paths.run)
    node.paths.boot.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(node.paths.boot, MachineReader().boot_id().encode())


def is_of_this_boot(node: LocalNode) -> bool:
    """Return whether the run files are of this boot; files without a note are."""
    return not node.paths.boot.exists() or read_text(node.paths.boot) == MachineReader().boot_id()


def _more_runtimes(programs: Programs) -> dict[str, str]:
    """Return binaries by handler, besides runc."""
    return {} if programs.crun is None else {CRUN: str(programs.crun)}


def _write_if_changed(path: Path, text: str) -> None:
    if not path.exists() or read_text(path) != text:
        write_atomic(path, text.encode(), mode=0o600)


def _revision(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
