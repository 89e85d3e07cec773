"""The root of klet's errors.

KletError
├── certs.errors.CertificateError (one that cannot be made, read or kept)
├── cri.errors.CriError        (Unavailable, NotFound, … : what the runtime said)
├── host.errors.HostError      (files, mounts, cgroups, processes)
├── checkpoint.CheckpointError (a file that cannot be trusted)
├── config.errors.ConfigError  (a setting that breaks a rule)
└── sources.errors.ManifestError (a manifest that is not a pod)
"""


class KletError(Exception):
    """Base of every error klet raises on purpose."""
