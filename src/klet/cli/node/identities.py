"""Who may use the kubelet API of a node: an authority of the node's own, and the certificate of the node's owner.

There is no API server for reviews: a client with a certificate of this authority may do everything.
"""

from datetime import timedelta
from pathlib import Path
from typing import Final

from klet.certs.maker import AuthorityFiles, CertificateMaker
from klet.certs.messages import Pair, Purpose, Template
from klet.host.files import remove_file, sync_directory, write_atomic

LIFETIME: Final = timedelta(days=3650)
"""As long as a node may live; `klet down --purge` and the next `klet up` make new ones."""
OWNER: Final = Template(common_name="klet-owner", organizations=("system:masters",))
_CERTIFICATE_MODE: Final = 0o644
_KEY_MODE: Final = 0o600


def authority_files(directory: Path) -> AuthorityFiles:
    return AuthorityFiles(certificate_file=directory / "ca.crt", key_file=directory / "ca.key")


async def ensure_identities(directory: Path, *, node: str, maker: CertificateMaker) -> bool:
    """Make what is missing; returns whether anything was. Raises what the maker raises."""
    authority = authority_files(directory)
    owner = AuthorityFiles(certificate_file=directory / "owner.crt", key_file=directory / "owner.key")
    is_known = _is_there(authority)
    if is_known and _is_there(owner):
        return False
    if not is_known:
        remove_file(owner.certificate_file)  # of an authority that is gone
        _write(authority, await maker.authority(f"{node}-ca", lifetime=LIFETIME))
    pair = await maker.leaf(OWNER, authority=authority, purpose=Purpose.CLIENT, lifetime=LIFETIME)
    _write(owner, pair)
    return True


def _is_there(files: AuthorityFiles) -> bool:
    return files.certificate_file.exists() and files.key_file.exists()


def _write(files: AuthorityFiles, pair: Pair) -> None:
    """Write the pair, the certificate last: where it is, the key belongs to it."""
    files.key_file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    remove_file(files.certificate_file)
    sync_directory(files.key_file.parent)  # before the new key is there
    write_atomic(files.key_file, pair.key.encode(), mode=_KEY_MODE)
    write_atomic(files.certificate_file, pair.certificate.encode(), mode=_CERTIFICATE_MODE)
