"""What the auth filter logs about requests that it refuses."""

import logging

import pytest

from klet.aio.clock import SystemClock
from klet.server.auth.certificates import CertificateAuthenticator
from klet.server.auth.filter import AuthFilter, AuthRequest
from klet.server.auth.identity import Rejected

LONG = "/pods/" + "ü" * 10_000


class AllowsNothing:
    async def allows(self, _user, _verb, _subresource):
        return False


@pytest.mark.parametrize(
    ("certificate", "message"),
    [
        pytest.param(Rejected("x509: expired"), "Credentials refused", id="credentials that do not count"),
        pytest.param(None, "Request forbidden", id="no right"),
    ],
)
async def test_a_path_of_an_unauthenticated_client_is_short_in_the_log(caplog, certificate, message):
    """Strangers write it: at ten kilobytes a line they would fill the disk."""
    auth = AuthFilter(
        certificates=CertificateAuthenticator(authorities=None, clock=SystemClock()),
        tokens=None,
        authorizer=AllowsNothing(),
        allows_anonymous=True,
        is_fine_grained=True,
    )
    with caplog.at_level(logging.INFO, logger="klet.server"):
        await auth.check(AuthRequest(method="GET", path=LONG, certificate=certificate))
    [line] = [record for record in caplog.records if record.getMessage() == message]
    assert len(line.path.encode()) <= 256
    assert line.path.startswith("/pods/ü")
