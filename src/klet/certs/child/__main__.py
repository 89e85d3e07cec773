"""`python -m klet.certs.child`: one JSON request on standard input, one JSON answer on standard output.

Ends with 0, or with 1 and a ChildRefusal that says which rule the request breaks.
"""

import sys
import warnings
from typing import assert_never

import msgspec
from cryptography.exceptions import UnsupportedAlgorithm

from klet.certs.child.issue import make_authority, make_self_signed, make_signing_request, sign_leaf, sign_request
from klet.certs.child.loading import Refused, describe
from klet.certs.child.pod_keys import make_pod_key
from klet.certs.messages import (
    REQUEST_LIMIT,
    Answer,
    ChildRefusal,
    Describe,
    MakeAuthority,
    MakePodKey,
    MakeSelfSigned,
    MakeSigningRequest,
    RefusalReason,
    Request,
    SignLeaf,
    SignRequest,
)


def main() -> int:
    answer = respond(sys.stdin.buffer.read(REQUEST_LIMIT + 1))
    sys.stdout.buffer.write(msgspec.json.encode(answer))
    return 1 if isinstance(answer, ChildRefusal) else 0


def respond(data: bytes) -> Answer:
    if len(data) > REQUEST_LIMIT:
        return ChildRefusal(
            reason=RefusalReason.BAD_REQUEST, message=f"the request is longer than {REQUEST_LIMIT} bytes"
        )
    try:
        request: Request = msgspec.json.decode(data, type=Request)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return ChildRefusal(reason=RefusalReason.BAD_REQUEST, message=f"the request cannot be read: {error}")
    try:
        # Names longer than X.509 wants are fine here; the library warns whenever it meets one.
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            return _carry_out(request)
    except Refused as refused:
        return ChildRefusal(reason=refused.reason, message=str(refused))
    except (ValueError, OverflowError, UnsupportedAlgorithm) as error:  # what the library finds wrong with a value
        return ChildRefusal(reason=RefusalReason.BAD_VALUE, message=f"{type(request).__name__}: {error}")


def _carry_out(request: Request) -> Answer:
    match request:
        case MakeSelfSigned():
            return make_self_signed(request)
        case MakeSigningRequest():
            return make_signing_request(request)
        case MakeAuthority():
            return make_authority(request)
        case SignLeaf():
            return sign_leaf(request)
        case SignRequest():
            return sign_request(request)
        case Describe():
            return describe(request)
        case MakePodKey():
            return make_pod_key(request)
        case _:
            assert_never(request)


if __name__ == "__main__":
    sys.exit(main())
