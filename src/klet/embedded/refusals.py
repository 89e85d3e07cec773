"""The errors of the API server: Status objects with upstream's messages."""

from collections.abc import Iterable

from klet.api.kinds import Kind
from klet.api.meta import Status, StatusCause, StatusDetails
from klet.api.validation.errors import FieldError, aggregate
from klet.errors import KletError


class RequestRefused(KletError):
    """A request that is answered with an error Status."""

    def __init__(self, status: Status) -> None:
        super().__init__(status.message)
        self.status = status


def resource_of(kind: Kind) -> str:
    """Return `pods` or `leases.coordination.k8s.io`."""
    return f"{kind.plural}.{kind.group}" if kind.group else kind.plural


def not_found(kind: Kind, name: str) -> RequestRefused:
    return _about(kind, name, 404, "NotFound", f'{resource_of(kind)} "{name}" not found')


def no_resource() -> RequestRefused:
    message = "the server could not find the requested resource"
    return _refused(404, "NotFound", message, StatusDetails())


def already_exists(kind: Kind, name: str, *, leaving: bool = False) -> RequestRefused:
    prefix = "object is being deleted: " if leaving else ""
    return _about(kind, name, 409, "AlreadyExists", f'{prefix}{resource_of(kind)} "{name}" already exists')


def modified(kind: Kind, name: str) -> RequestRefused:
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(kind, name, why)


def conflict(kind: Kind, name: str, why: str) -> RequestRefused:
    text = f'Operation cannot be fulfilled on {resource_of(kind)} "{name}": {why}'
    return _about(kind, name, 409, "Conflict", text)


def wrong_uid(kind: Kind, name: str, *, wanted: str, found: str) -> RequestRefused:
    why = (
        f"the UID in the precondition ({wanted}) does not match the UID in record ({found})."
        " The object might have been deleted and then recreated"
    )
    text = f'Operation cannot be fulfilled on {kind.name} "{name}": {why}'
    return _about(kind, name, 409, "Conflict", text)


def wrong_version(kind: Kind, name: str, *, wanted: str, found: str) -> RequestRefused:
    why = (
        f"the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({found})."
        " The object might have been modified"
    )
    text = f'Operation cannot be fulfilled on {kind.name} "{name}": {why}'
    return _about(kind, name, 409, "Conflict", text)


def invalid(kind: Kind, name: str, errors: Iterable[FieldError]) -> RequestRefused:
    found = tuple(errors)
    of_kind = f"{kind.name}.{kind.group}" if kind.group else kind.name
    causes = tuple(StatusCause(reason=each.kind, message=each.body, field=str(each.field)) for each in found)
    details = StatusDetails(name=name, group=kind.group, kind=kind.name, causes=causes)
    return _refused(422, "Invalid", f'{of_kind} "{name}" is invalid: {aggregate(found)}', details)


def bad_request(message: str) -> RequestRefused:
    return _refused(400, "BadRequest", message)


def bad_options(message: str) -> RequestRefused:
    text = f'ListOptions.meta.k8s.io "" is invalid: {message}'
    return _refused(422, "Invalid", text, StatusDetails(group="meta.k8s.io", kind="ListOptions"))


def rejected_patch(message: str = "the server rejected our request due to an error in our request") -> RequestRefused:
    return _refused(422, "Invalid", message)


def method_not_allowed() -> RequestRefused:
    return _refused(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")


def unsupported_media_type(accepted: Iterable[str]) -> RequestRefused:
    message = "the body of the request was in an unknown format - accepted media types include: "
    return _refused(415, "UnsupportedMediaType", message + ", ".join(accepted))


def expired(message: str) -> RequestRefused:
    return _refused(410, "Expired", message)


def unauthorized() -> RequestRefused:
    return _refused(401, "Unauthorized", "Unauthorized")


def forbidden(kind: Kind, name: str, why: str) -> RequestRefused:
    return _about(kind, name, 403, "Forbidden", f'{resource_of(kind)} "{name}" is forbidden: {why}')


def internal(why: str) -> RequestRefused:
    details = StatusDetails(causes=(StatusCause(message=why),))
    return _refused(500, "InternalError", f"Internal error occurred: {why}", details)


def _about(kind: Kind, name: str, code: int, reason: str, message: str) -> RequestRefused:
    return _refused(code, reason, message, StatusDetails(name=name, group=kind.group, kind=kind.plural))


def _refused(code: int, reason: str, message: str, details: StatusDetails | None = None) -> RequestRefused:
    return RequestRefused(
        Status(
            api_version="v1",
            kind="Status",
            status="Failure",
            message=message,
            reason=reason,
            details=details,
            code=code,
        )
    )
