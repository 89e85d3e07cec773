"""The keys of a cluster: its authority, certificates for servers and users, service account keys, kubeconfigs."""

from datetime import timedelta
from pathlib import Path
from typing import Final

import msgspec

from klet.aio.clock import Clock
from klet.certs.child.issue import make_authority, sign_leaf
from klet.certs.messages import MakeAuthority, Pair, Purpose, SignLeaf, Template
from klet.kube.access import Access
from klet.kube.kubeconfig import load_kubeconfig

LIFETIME: Final = timedelta(days=365)
ADMINS: Final = "system:masters"
NODES: Final = "system:nodes"


class ControlPlaneIdentities:
    """Makes certificates in a directory. An authority that is there is used again."""

    def __init__(self, *, directory: Path, server: str, clock: Clock) -> None:
        self._directory = directory
        self._server = server
        self._clock = clock

    @property
    def authority(self) -> Path:
        return self._directory / "ca.crt"

    @property
    def authority_key(self) -> Path:
        return self.key_of("ca")

    def key_of(self, name: str) -> Path:
        return self._directory / f"{name}.key"

    def prepare(self) -> None:
        """Make the authority."""
        self._directory.mkdir(parents=True, exist_ok=True)
        if not self.authority_key.exists():
            made = make_authority(MakeAuthority(common_name="kubernetes", lifetime=LIFETIME, now=self._clock.now()))
            self._write("ca", made)

    def server(self, name: str, *, dns_names: tuple[str, ...] = (), ips: tuple[str, ...] = ()) -> tuple[Path, Path]:
        """Return the certificate and the key of a server."""
        return self._sign(name, Template(common_name=name, dns_names=dns_names, ips=ips), Purpose.SERVER)

    def client(self, user: str, *groups: str) -> tuple[Path, Path]:
        """Return the certificate and the key of a user."""
        return self._sign(file_name(user), Template(common_name=user, organizations=groups), Purpose.CLIENT)

    def kubeconfig(self, user: str, *groups: str) -> Path:
        """Return a kubeconfig with a certificate of its own for a user of these groups."""
        certificate, key = self.client(user, *groups)
        shown = {"client-certificate": str(certificate), "client-key": str(key)}
        return self.write_kubeconfig(file_name(user), shown)

    def write_kubeconfig(self, name: str, shown: dict[str, str]) -> Path:
        """Return a kubeconfig that shows this to the API server."""
        cluster = {"server": self._server, "certificate-authority": str(self.authority)}
        text = msgspec.json.encode(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "cluster", "cluster": cluster}],
                "users": [{"name": name, "user": shown}],
                "contexts": [{"name": "only", "context": {"cluster": "cluster", "user": name}}],
                "current-context": "only",
            }
        )
        path = self._directory / f"{name}.kubeconfig"
        path.write_bytes(text)
        return path

    def access(self, user: str, *groups: str) -> Access:
        return load_kubeconfig(self.kubeconfig(user, *groups))

    def _sign(self, name: str, template: Template, purpose: Purpose) -> tuple[Path, Path]:
        request = SignLeaf(
            authority_certificate_file=str(self.authority),
            authority_key_file=str(self.authority_key),
            template=template,
            purpose=purpose,
            lifetime=LIFETIME,
            now=self._clock.now(),
        )
        return self._write(name, sign_leaf(request))

    def _write(self, name: str, pair: Pair) -> tuple[Path, Path]:
        certificate, key = self._directory / f"{name}.crt", self.key_of(name)
        certificate.write_text(pair.certificate)
        key.touch(mode=0o600)
        key.write_text(pair.key)
        return certificate, key


def node_user(name: str) -> tuple[str, str]:
    """Return the user and the group that a node's credentials name."""
    return f"system:node:{name}", NODES


def file_name(user: str) -> str:
    return user.replace(":", "-")
