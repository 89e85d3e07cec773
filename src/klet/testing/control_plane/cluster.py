"""etcd, kube-apiserver, and if asked for kube-controller-manager and kube-scheduler, in a directory and on loopback.

Authorization is Node and RBAC with NodeRestriction, as kubeadm sets it up, and what nodes ask for is in an audit log.
"""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from klet.aio.clock import Clock, SystemClock
from klet.kube.client import KubeClient
from klet.kube.credentials import Credentials
from klet.kube.errors import KubeError
from klet.kube.throttle import Unlimited
from klet.kube.transport import Transport
from klet.testing.control_plane.identities import ADMINS, ControlPlaneIdentities
from klet.testing.control_plane.processes import Daemon, DaemonFailed, free_port
from klet.testing.control_plane.programs import API_SERVER, CONTROLLERS, SCHEDULER, find_etcd, find_program

SERVICES: Final = "10.96.0.0/16"
ACCOUNTS: Final = "service-accounts"
FIRST_SERVICE: Final = "10.96.0.1"
START_LIMIT: Final = timedelta(seconds=90)
_POLL: Final = timedelta(milliseconds=50)
_REQUEST_TIMEOUT: Final = timedelta(seconds=10)
_NO_RELATIONSHIP: Final = "no relationship found between node"
_AUTHORIZER_LAG: Final = timedelta(seconds=5)
_AUDIT_POLICY: Final = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "userGroups": ["system:nodes", "system:bootstrappers"]}, {"level": "None"}],
}


class Roles(Struct, frozen=True):
    """What runs besides the API server, and with what."""

    controllers: str = ""
    """The controllers of kube-controller-manager, as its flag names them; none: it does not run."""
    scheduler: bool = False
    api_server_flags: tuple[str, ...] = ()


class ControlPlane(Struct, frozen=True):
    """A running control plane."""

    directory: Path
    server: str
    identities: ControlPlaneIdentities
    etcd: Daemon
    api_server: Daemon
    others: tuple[Daemon, ...]
    clock: Clock

    @property
    def admin(self) -> Path:
        """The kubeconfig of a cluster administrator."""
        return self.identities.kubeconfig("admin", ADMINS)

    @asynccontextmanager
    async def client(self, user: str = "admin", *groups: str) -> AsyncIterator[KubeClient]:
        """Return a client for a user of these groups; of an administrator if none is named."""
        async with self.transport(user, *groups) as transport:
            yield KubeClient(transport=transport, throttle=Unlimited(), timeout=_REQUEST_TIMEOUT, clock=self.clock)

    @asynccontextmanager
    async def transport(self, user: str = "admin", *groups: str) -> AsyncIterator[Transport]:
        access = self.identities.access(user, *(groups if user != "admin" else (ADMINS,)))
        transport = Transport(access=access, credentials=Credentials(login=access.login, clock=self.clock))
        try:
            yield transport
        finally:
            await transport.close()

    async def until_ready(self) -> None:
        """Wait until the API server says that it is ready."""
        give_up = self.clock.now() + START_LIMIT
        async with self.client() as client:
            while True:
                self.etcd.check()
                self.api_server.check()
                try:
                    await client.read("/readyz")
                    return
                except KubeError as error:
                    if self.clock.now() > give_up:
                        raise DaemonFailed(f"{error}\n{self.api_server.log[-4000:]}") from error
                await self.clock.sleep(_POLL)

    def audited(self) -> list[dict[str, Any]]:
        """Return what nodes have asked for, oldest first."""
        path = self.directory / "audit.log"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def refused(self, user: str, *, program: str = "klet/") -> list[str]:
        """Return what was not allowed to a user: what a program asked for, and why not."""
        return list_refused(self.audited(), user=user, program=program)


def list_refused(audited: Sequence[dict[str, Any]], *, user: str, program: str) -> list[str]:
    """Return the refused requests of a program, with the reasons."""
    events = [event for event in audited if event["user"]["username"] == user and program in event.get("userAgent", "")]
    return [
        f"{event['user']['username']}: {event['verb']} {event['requestURI']}: {event['responseStatus']}"
        for number, event in enumerate(events)
        if _code(event) in (401, 403) and not _was_early(event, events[number + 1 :])
    ]


def _code(event: dict[str, Any]) -> int:
    return int(event.get("responseStatus", {}).get("code", 0))


def _was_early(refused: dict[str, Any], later: Sequence[dict[str, Any]]) -> bool:
    """Return whether the node authorizer refused a request only because it had not seen the pod yet.

    It follows pods by a watch of its own, and a node can be faster. The same request is allowed within seconds then.
    """
    if _NO_RELATIONSHIP not in str(refused["responseStatus"].get("message", "")):
        return False
    at = datetime.fromisoformat(refused["requestReceivedTimestamp"])
    return any(
        _code(event) in (200, 201)
        and event["verb"] == refused["verb"]
        and event.get("objectRef") == refused.get("objectRef")
        and timedelta() <= datetime.fromisoformat(event["requestReceivedTimestamp"]) - at <= _AUTHORIZER_LAG
        for event in later
    )


@asynccontextmanager
async def run_control_plane(
    directory: Path, roles: Roles | None = None, *, clock: Clock | None = None
) -> AsyncIterator[ControlPlane]:
    """Run a control plane that is ready, until the block is left."""
    plane = prepare_control_plane(directory, roles or Roles(), clock=clock or SystemClock())
    try:
        plane.etcd.start()
        plane.api_server.start()
        await plane.until_ready()
        for daemon in plane.others:
            daemon.start()
        yield plane
    finally:
        for daemon in reversed((plane.etcd, plane.api_server, *plane.others)):
            await daemon.kill()


def prepare_control_plane(directory: Path, roles: Roles, *, clock: Clock) -> ControlPlane:
    """Write every file that is needed; nothing runs yet."""
    directory.mkdir(parents=True, exist_ok=True)
    port, etcd_port, peer_port = free_port(), free_port(), free_port()
    server = f"https://127.0.0.1:{port}"
    identities = ControlPlaneIdentities(directory=directory / "pki", server=server, clock=clock)
    identities.prepare()
    _, accounts = identities.client(ACCOUNTS)
    (directory / "audit.json").write_text(json.dumps(_AUDIT_POLICY))

    def daemon(name: str, *command: str) -> Daemon:
        return Daemon(command=command, log=directory / f"{name}.log", clock=clock)

    others = []
    if roles.controllers:
        others.append(prepare_controllers(directory, identities, roles.controllers, clock=clock))
    if roles.scheduler:
        flags = _own_flags(identities, "system:kube-scheduler")
        others.append(daemon(SCHEDULER, str(find_program(SCHEDULER)), *flags))
    api_server = _api_server_flags(directory, identities, port, etcd_port, accounts)
    return ControlPlane(
        directory=directory,
        server=server,
        identities=identities,
        etcd=daemon("etcd", str(find_etcd()), *_etcd_flags(directory, etcd_port, peer_port)),
        api_server=daemon(API_SERVER, str(find_program(API_SERVER)), *api_server, *roles.api_server_flags),
        others=tuple(others),
        clock=clock,
    )


def _etcd_flags(directory: Path, port: int, peer_port: int) -> tuple[str, ...]:
    client, peer = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer_port}"
    return (
        f"--data-dir={directory / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--logger=zap",
        "--log-level=warn",
        # What is lost when the machine goes down is lost anyway.
        "--unsafe-no-fsync",
    )


def _api_server_flags(
    directory: Path, identities: ControlPlaneIdentities, port: int, etcd_port: int, accounts: Path
) -> tuple[str, ...]:
    names = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
    certificate, key = identities.server("kube-apiserver", dns_names=names, ips=("127.0.0.1", FIRST_SERVICE))
    kubelet_certificate, kubelet_key = identities.client("kube-apiserver-kubelet-client", ADMINS)
    return (
        f"--etcd-servers=http://127.0.0.1:{etcd_port}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={port}",
        f"--tls-cert-file={certificate}",
        f"--tls-private-key-file={key}",
        f"--client-ca-file={identities.authority}",
        f"--kubelet-client-certificate={kubelet_certificate}",
        f"--kubelet-client-key={kubelet_key}",
        "--kubelet-preferred-address-types=InternalIP",
        f"--service-account-key-file={accounts}",
        f"--service-account-signing-key-file={accounts}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-cluster-ip-range={SERVICES}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--enable-bootstrap-token-auth=true",
        "--allow-privileged=true",
        f"--audit-policy-file={directory / 'audit.json'}",
        f"--audit-log-path={directory / 'audit.log'}",
        f"--cert-dir={directory / 'certs'}",
    )


def prepare_controllers(
    directory: Path, identities: ControlPlaneIdentities, controllers: str, *, clock: Clock
) -> Daemon:
    """Return a kube-controller-manager with these controllers; it is not started."""
    command = (
        str(find_program(CONTROLLERS)),
        *_own_flags(identities, "system:kube-controller-manager"),
        f"--controllers={controllers}",
        "--use-service-account-credentials=true",
        f"--service-account-private-key-file={identities.key_of(ACCOUNTS)}",
        f"--root-ca-file={identities.authority}",
        f"--cluster-signing-cert-file={identities.authority}",
        f"--cluster-signing-key-file={identities.authority_key}",
    )
    return Daemon(command=command, log=directory / f"{CONTROLLERS}.log", clock=clock)


def _own_flags(identities: ControlPlaneIdentities, user: str) -> tuple[str, ...]:
    """Return what kube-controller-manager and kube-scheduler have in common."""
    kubeconfig = identities.kubeconfig(user)
    return (
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={free_port()}",
        "--leader-elect=false",
    )
