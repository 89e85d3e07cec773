"""Field errors: what is wrong with which field, and its exact text (upstream: `field.Error`, `field.ErrorList`)."""

from collections.abc import Iterable, Iterator
from enum import StrEnum

from msgspec import Struct

from klet.api.validation.fieldpath import FieldPath
from klet.api.validation.rendering import go_quote, render_value


class ErrorKind(StrEnum):
    """Kinds of field errors; the value is the `reason` of a cause in a `Status`."""

    NOT_FOUND = "FieldValueNotFound"
    REQUIRED = "FieldValueRequired"
    DUPLICATE = "FieldValueDuplicate"
    INVALID = "FieldValueInvalid"
    TYPE_INVALID = "FieldValueTypeInvalid"
    NOT_SUPPORTED = "FieldValueNotSupported"
    FORBIDDEN = "FieldValueForbidden"
    TOO_LONG = "FieldValueTooLong"
    TOO_MANY = "FieldValueTooMany"
    INTERNAL = "InternalError"


_TITLES = {
    ErrorKind.NOT_FOUND: "Not found",
    ErrorKind.REQUIRED: "Required value",
    ErrorKind.DUPLICATE: "Duplicate value",
    ErrorKind.INVALID: "Invalid value",
    ErrorKind.TYPE_INVALID: "Invalid value",
    ErrorKind.NOT_SUPPORTED: "Unsupported value",
    ErrorKind.FORBIDDEN: "Forbidden",
    ErrorKind.TOO_LONG: "Too long",
    ErrorKind.TOO_MANY: "Too many",
    ErrorKind.INTERNAL: "Internal error",
}
_WITHOUT_VALUE = frozenset({ErrorKind.REQUIRED, ErrorKind.FORBIDDEN, ErrorKind.TOO_LONG, ErrorKind.INTERNAL})


class FieldError(Struct, frozen=True):
    """One broken rule. `str()` gives the whole line, `body` the part after the path (the message of a cause)."""

    kind: ErrorKind
    field: FieldPath
    value: object = None
    detail: str = ""

    @property
    def body(self) -> str:
        text = _TITLES[self.kind]
        if self.kind not in _WITHOUT_VALUE:
            text = f"{text}: {render_value(self.value)}"
        return f"{text}: {self.detail}" if self.detail else text

    def __str__(self) -> str:
        return f"{self.field}: {self.body}"


FieldErrors = Iterator[FieldError]


def not_found(field: FieldPath, value: object, detail: str = "") -> FieldError:
    return FieldError(ErrorKind.NOT_FOUND, field, value, detail)


def required(field: FieldPath, detail: str = "") -> FieldError:
    return FieldError(ErrorKind.REQUIRED, field, "", detail)


def duplicate(field: FieldPath, value: object) -> FieldError:
    return FieldError(ErrorKind.DUPLICATE, field, value)


def invalid(field: FieldPath, value: object, detail: str) -> FieldError:
    return FieldError(ErrorKind.INVALID, field, value, detail)


def not_supported(field: FieldPath, value: object, supported: Iterable[str]) -> FieldError:
    """Return the error for an unknown member of a closed set; the caller gives the set in the order to print."""
    detail = "supported values: " + ", ".join(map(go_quote, supported))
    return FieldError(ErrorKind.NOT_SUPPORTED, field, value, detail)


def forbidden(field: FieldPath, detail: str) -> FieldError:
    return FieldError(ErrorKind.FORBIDDEN, field, "", detail)


def too_long(field: FieldPath, limit: int) -> FieldError:
    unit = "byte" if limit == 1 else "bytes"
    return FieldError(ErrorKind.TOO_LONG, field, "", f"may not be more than {limit} {unit}")


def too_many(field: FieldPath, count: int, limit: int) -> FieldError:
    unit = "item" if limit == 1 else "items"
    return FieldError(ErrorKind.TOO_MANY, field, count, f"must have at most {limit} {unit}")


def invalid_each(field: FieldPath, value: object, messages: Iterable[str]) -> FieldErrors:
    """Return one Invalid error for each message of a format check."""
    for message in messages:
        yield FieldError(ErrorKind.INVALID, field, value, message)


def aggregate(errors: Iterable[FieldError]) -> str:
    """Return all errors as one text: equal texts once, brackets from two on, nothing for none."""
    texts = tuple(dict.fromkeys(str(error) for error in errors))
    return f"[{', '.join(texts)}]" if len(texts) > 1 else "".join(texts)
