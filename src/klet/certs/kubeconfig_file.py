"""The kubeconfig that a bootstrap leaves, as upstream writes it, and whether one that is there can be used."""

import base64
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Protocol

import yaml

from klet.certs.errors import CertificateError
from klet.certs.messages import CertificateFacts
from klet.host.errors import FileError
from klet.host.files import write_atomic
from klet.kube.access import Access, NoVerification, PemSource, SystemAuthorities
from klet.kube.credentials import CredentialSet
from klet.kube.errors import KubeconfigError, KubeError
from klet.kube.kubeconfig import load_kubeconfig
from klet.kube.tls import client_context

_DIRECTORY_MODE: Final = 0o755
_FILE_MODE: Final = 0o600


class FactsReader(Protocol):
    """The part of the maker that is needed here."""

    async def describe(self, certificate: str) -> CertificateFacts: ...


def build_kubeconfig(access: Access, pair_file: Path) -> dict[str, Any]:
    """Return the server of the bootstrap with the node's own certificate. A proxy and a server name go along."""
    cluster: dict[str, Any] = {"server": access.server}
    match access.authority:
        case PemSource(path=None, data=data):
            cluster["certificate-authority-data"] = base64.b64encode(data).decode()
        case PemSource(path=path):
            cluster["certificate-authority"] = str(path)
        case NoVerification():
            cluster["insecure-skip-tls-verify"] = True
        case SystemAuthorities():
            pass
    if access.server_name:
        cluster["tls-server-name"] = access.server_name
    if access.proxy:
        cluster["proxy-url"] = access.proxy
    user = {"client-certificate": str(pair_file), "client-key": str(pair_file)}
    context = {"cluster": "default-cluster", "namespace": "default", "user": "default-auth"}
    return {
        "apiVersion": "v1",
        "clusters": [{"name": "default-cluster", "cluster": cluster}],
        "contexts": [{"name": "default-context", "context": context}],
        "current-context": "default-context",
        "kind": "Config",
        "users": [{"name": "default-auth", "user": user}],
    }


def write_kubeconfig(path: Path, config: dict[str, Any]) -> None:
    """Put a kubeconfig in place. Blocks; raises KubeconfigError."""
    try:
        path.parent.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
        write_atomic(path, yaml.safe_dump(config, sort_keys=True).encode(), mode=_FILE_MODE)
    except FileError as error:
        raise KubeconfigError(f"--kubeconfig: {error}") from error
    except OSError as error:
        raise KubeconfigError(f"--kubeconfig: cannot make {path.parent}: {error.strerror}") from error


async def find_flaw(path: Path, reader: FactsReader, *, now: datetime) -> str:
    """Return why a node cannot use a kubeconfig: it needs a valid client certificate. Empty if it can."""
    try:
        access = load_kubeconfig(path)
        if access.login.pair is None:
            return f"{path} has no client certificate"
        certificate, key = access.login.pair.read()
        client_context(access.authority, CredentialSet(certificate=certificate, key=key))
        facts = await reader.describe(certificate.decode("ascii", errors="replace"))
    except (KubeError, CertificateError, OSError) as error:
        return str(error)
    if now > facts.chain_not_after:
        return f"part of the existing client certificate in {path} is expired: {facts.chain_not_after}"
    return ""
