"""gRPC status codes under the names that users know from events."""

from enum import StrEnum


class Code(StrEnum):
    """A gRPC status code as Go spells it."""

    OK = "OK"
    CANCELLED = "Canceled"
    UNKNOWN = "Unknown"
    INVALID_ARGUMENT = "InvalidArgument"
    DEADLINE_EXCEEDED = "DeadlineExceeded"
    NOT_FOUND = "NotFound"
    ALREADY_EXISTS = "AlreadyExists"
    PERMISSION_DENIED = "PermissionDenied"
    RESOURCE_EXHAUSTED = "ResourceExhausted"
    FAILED_PRECONDITION = "FailedPrecondition"
    ABORTED = "Aborted"
    OUT_OF_RANGE = "OutOfRange"
    UNIMPLEMENTED = "Unimplemented"
    INTERNAL = "Internal"
    UNAVAILABLE = "Unavailable"
    DATA_LOSS = "DataLoss"
    UNAUTHENTICATED = "Unauthenticated"
