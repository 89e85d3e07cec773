"""The root of klet's errors.

KletError
├── certs.errors.CertificateError (one that cannot be made, read or kept)
├── cri.errors.CriError        (Unavailable, NotFound, … : what the runtime said)
├── csi.errors.CsiError        (a CSI driver refused, failed or did not answer)
├── host.errors.HostError      (files, mounts, cgroups, processes)
├── model.pods.BadPodUID       (a text that is no UID)
├── checkpoint.CheckpointError (a file that cannot be trusted)
├── config.errors.ConfigError  (a setting that breaks a rule)
└── sources.errors.ManifestError (a manifest that is not a pod)
"""

import logging


class KletError(Exception):
    """Base of every error klet raises on purpose."""

    is_reported_elsewhere = False
    """Whether another part reports it once for all, as for an API server that does not answer."""


def level_for(error: BaseException | None, usual: int = logging.WARNING) -> int:
    """Return the level at which to log a failure: what is reported elsewhere is for debugging only."""
    while error is not None:
        if isinstance(error, KletError) and error.is_reported_elsewhere:
            return logging.DEBUG
        error = error.__cause__
    return usual
