"""What can be wrong with certificates.

CertificateError
├── CertificateRefused     what was asked for breaks a rule; asking again does not help
├── MakerFailed            the child process died, hung or gave an invalid answer; another try may help
├── SigningFailed          a signing request could not be posted or read
│   └── RequestExists      … one of that name is there
├── NotIssued              a signing request ended without a certificate
├── IdentityLost           the client certificate is lost, and no new one can be obtained
├── PodCertificateMissing  a certificate that a volume of a pod shows is not there yet, or never will be
├── PodCertificateNotRequested  one could not be requested, or its request has vanished; it is tried again
└── PairError              a certificate and its key on disk cannot be read or written
    ├── PairMissing        … there is none
    └── PairDamaged        … they are not a certificate and the key that belongs to it
"""

from pathlib import Path

from klet.certs.messages import RefusalReason
from klet.errors import KletError


class CertificateError(KletError):
    """Base of the errors of certificates."""


class CertificateRefused(CertificateError):
    """The child refused a request that breaks a rule."""

    def __init__(self, message: str, *, reason: RefusalReason) -> None:
        super().__init__(message)
        self.reason = reason


class MakerFailed(CertificateError):
    """The child could not be started, died, was killed at its deadline, or gave no proper answer."""


class SigningFailed(CertificateError):
    """The API server did not take, or did not show, a signing request."""

    def __init__(self, message: str, *, may_pass: bool, is_server_well: bool = False) -> None:
        super().__init__(message)
        self.may_pass = may_pass
        """Whether the same request may be taken later."""
        self.is_server_well = is_server_well
        """Whether the answer is a valid one of the API server itself."""


class RequestExists(SigningFailed):
    """A request of that name is there."""


class NotIssued(CertificateError):
    """Denied, failed, deleted, or not signed in time."""


class IdentityLost(CertificateError):
    """The agent cannot authenticate to the API server; a restart may find new credentials."""


class PairError(CertificateError):
    """A pair of files that cannot be used as it is."""


class PairMissing(PairError):
    """There is no pair at any of its paths."""


class PairDamaged(PairError):
    """A file breaks a rule."""

    def __init__(self, path: Path, rule: str) -> None:
        super().__init__(f"{path}: {rule}")
        self.path = path
        self.rule = rule


class PodCertificateMissing(CertificateError):
    """A volume of a pod cannot show its certificate."""


class PodCertificateNotRequested(CertificateError):
    """A certificate of a pod could not be requested; the next try may succeed."""
