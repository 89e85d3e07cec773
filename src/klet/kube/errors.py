"""What can go wrong between the agent and an API server.

KubeError
├── KubeconfigError   settings that cannot be used; names the file and the field
├── CredentialError   no token or client certificate could be had
│   └── CredentialPluginError   the credential plugin was not started, or did not end well
├── Unreachable       no answer: refused, cut, timed out, TLS
└── ApiError          an error response, with its Status
    ├── NotFound  ├── AlreadyExists  ├── Conflict  ├── Invalid
    ├── Unauthorized  ├── Forbidden
    ├── Expired       a resource version or continue token that is too old
    └── TryLater      overloaded or not ready yet
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from klet.api.meta import Status
from klet.errors import KletError
from klet.kube.metrics import CredentialPluginCall

AWAY: Final = frozenset({502, 503, 504})
"""What a proxy, or a server that starts or stops, answers for the API server that is not there."""


class KubeError(KletError):
    """Anything that the Kubernetes API port raises."""


class KubeconfigError(KubeError):
    """A kubeconfig that cannot be used."""


class CredentialError(KubeError):
    """Credentials that could not be read or obtained."""


class CredentialPluginError(CredentialError):
    """A credential plugin that returned no answer."""

    def __init__(self, message: str, *, call: CredentialPluginCall, code: int = 1) -> None:
        super().__init__(message)
        self.call = call
        self.code = code
        """Its exit code; -1 if a signal ended it, 1 if it has none."""


class Unreachable(KubeError):  # a name of the thing, as the family is called
    """The API server did not answer."""

    is_reported_elsewhere = True


class ApiError(KubeError):
    """The API server refused. `str()` is its message, as users know it."""

    def __init__(self, status: Status, *, retry_after: timedelta | None = None) -> None:
        super().__init__(status.message or status.reason or f"the server answered {status.code}")
        self.status = status
        self.retry_after = retry_after
        self.is_reported_elsewhere = status.code in AWAY

    @property
    def code(self) -> int:
        return self.status.code

    @property
    def reason(self) -> str:
        return self.status.reason

    def has_cause(self, reason: str) -> bool:
        """Return whether the server names this among the causes of its refusal."""
        return self.status.details is not None and any(each.reason == reason for each in self.status.details.causes)


class NotFound(ApiError):
    """No such object, or no such resource."""


class AlreadyExists(ApiError):
    """An object of that name is there."""


class Conflict(ApiError):
    """The object has changed, or is not the one that was meant."""


class Invalid(ApiError):
    """The object breaks a rule."""


class Unauthorized(ApiError):
    """The credentials are not accepted."""


class Forbidden(ApiError):
    """The credentials do not allow it."""


class Expired(ApiError):
    """The server does not have that version, any more or yet: list again."""


class TryLater(ApiError):
    """Overloaded, starting or timed out: the same request may succeed later."""


_VERSION_TOO_LARGE: Final = "ResourceVersionTooLarge"
_BY_REASON: Final[Mapping[str, type[ApiError]]] = {
    "NotFound": NotFound,
    "AlreadyExists": AlreadyExists,
    "Conflict": Conflict,
    "Invalid": Invalid,
    "Unauthorized": Unauthorized,
    "Forbidden": Forbidden,
    "Expired": Expired,
    "Gone": Expired,
    "TooManyRequests": TryLater,
    "ServerTimeout": TryLater,
    "Timeout": TryLater,
    "ServiceUnavailable": TryLater,
}
_BY_CODE: Final[Mapping[int, type[ApiError]]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
    422: Invalid,
    429: TryLater,
    503: TryLater,
    504: TryLater,
}


def api_error(status: Status, *, retry_after: timedelta | None = None) -> ApiError:
    """Return the error for a Status: its reason decides, its code where the reason is unknown."""
    seconds = status.details.retry_after_seconds if status.details is not None else 0
    if retry_after is None and seconds > 0:
        retry_after = timedelta(seconds=seconds)
    cls = _BY_REASON.get(status.reason) or _BY_CODE.get(status.code, ApiError)
    error = cls(status, retry_after=retry_after)
    if error.has_cause(_VERSION_TOO_LARGE):
        # Its state was put back: it would wait for a version that may never come.
        return Expired(status, retry_after=retry_after)
    return error
