"""Files of one volume that would lie on, or below, one another; they are allowed, and warned about."""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from klet.api.validation.rendering import go_quote
from klet.api.volume import Volume, VolumeProjection


class _Target(Struct, frozen=True):
    """Where a file goes, and which source of a projected volume wants it there."""

    path: str
    source: str = ""

    def __str__(self) -> str:
        return f"{go_quote(self.path)} ({self.source})" if self.source else go_quote(self.path)


def overlapping_volume_paths(volume: Volume) -> Iterator[str]:
    if (config_map := volume.config_map) is not None:
        targets = [_Target(item.path) for item in config_map.items]
        yield from _warn(volume, f"ConfigMap {go_quote(config_map.name)}", targets)
    if (secret := volume.secret) is not None:
        targets = [_Target(item.path) for item in secret.items]
        yield from _warn(volume, f"Secret {go_quote(secret.secret_name)}", targets)
    if volume.downward_api is not None:
        yield from _warn(volume, "DownwardAPI", [_Target(file.path) for file in volume.downward_api.items])
    if volume.projected is not None:
        for source in volume.projected.sources:
            if source == VolumeProjection():
                yield f"volume {go_quote(volume.name)} (Projected) has no sources provided"
        targets = [target for source in volume.projected.sources for target in _projected(source)]
        yield from _warn(volume, "Projected", targets)


def _warn(volume: Volume, kind: str, targets: Iterable[_Target]) -> Iterator[str]:
    earlier: list[tuple[_Target, str]] = []
    for target in targets:
        folder = f"{target.path.rstrip('/')}/"
        if folder == "/":
            continue
        for other, other_folder in earlier:
            if folder.startswith(other_folder) or other_folder.startswith(folder):
                yield f"volume {go_quote(volume.name)} ({kind}): overlapping paths: {target} with {other}"
        earlier.append((target, folder))


def _projected(projection: VolumeProjection) -> Iterator[_Target]:
    if (config_map := projection.config_map) is not None and config_map.items:
        for item in config_map.items:
            yield _Target(item.path, f"ConfigMap {go_quote(config_map.name)}")
    elif (secret := projection.secret) is not None and secret.items:
        for item in secret.items:
            yield _Target(item.path, f"Secret {go_quote(secret.name)}")
    elif projection.downward_api is not None and projection.downward_api.items:
        for file in projection.downward_api.items:
            yield _Target(file.path, "DownwardAPI")
    elif projection.service_account_token is not None:
        yield _Target(projection.service_account_token.path, "ServiceAccountToken")
    elif (bundle := projection.cluster_trust_bundle) is not None:
        name = bundle.signer_name or "" if bundle.name is None else bundle.name
        yield _Target(bundle.path, f"ClusterTrustBundle {go_quote(name)}")
    elif (certificate := projection.pod_certificate) is not None:
        yield _Target(certificate.certificate_chain_path, "PodCertificate chain")
        yield _Target(certificate.key_path, "PodCertificate key")
        yield _Target(certificate.credential_bundle_path, "PodCertificate credential bundle")
