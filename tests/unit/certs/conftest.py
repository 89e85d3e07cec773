from datetime import UTC, datetime, timedelta

import pytest

from klet.certs.child.issue import make_authority, make_signing_request, sign_leaf, sign_request
from klet.certs.child.loading import describe
from klet.certs.messages import (
    Describe,
    MakeAuthority,
    MakeSigningRequest,
    Purpose,
    SignLeaf,
    SignRequest,
    Template,
)
from klet.testing.clock import ManualClock

NOW = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="session")
def authority_files(tmp_path_factory):
    """An authority that lasts ten years from NOW."""
    directory = tmp_path_factory.mktemp("authority")
    pair = make_authority(MakeAuthority(common_name="test-ca", lifetime=timedelta(days=3650), now=NOW))
    (directory / "ca.crt").write_text(pair.certificate)
    (directory / "ca.key").write_text(pair.key)
    return directory / "ca.crt", directory / "ca.key"


@pytest.fixture(scope="session")
def new_pair(authority_files):
    """Makes a pair that lasts a year from NOW."""

    def make(name="system:node:edge-1", *, lifetime=timedelta(days=365), now=NOW, **names):
        return sign_leaf(
            SignLeaf(
                authority_certificate_file=str(authority_files[0]),
                authority_key_file=str(authority_files[1]),
                template=Template(common_name=name, **names),
                purpose=Purpose.SERVER,
                lifetime=lifetime,
                now=now,
            )
        )

    return make


@pytest.fixture(scope="session")
def pair(new_pair):
    return new_pair()


@pytest.fixture(scope="session")
def other_key():
    return make_signing_request(MakeSigningRequest(template=Template(common_name="other"))).key


class InProcess:
    """The maker without its child: what the child does, done here."""

    def __init__(self, clock, authority_files):
        self._clock = clock
        self._authority = authority_files

    async def signing_request(self, template, *, key=""):
        return make_signing_request(MakeSigningRequest(template=template, key=key))

    async def describe(self, certificate):
        return describe(Describe(certificate=certificate))

    def sign(self, request, purpose, lifetime=timedelta(days=10)):
        """The certificate for a posted request."""
        question = SignRequest(
            authority_certificate_file=str(self._authority[0]),
            authority_key_file=str(self._authority[1]),
            request=request.spec.request.decode(),
            purpose=purpose,
            lifetime=lifetime,
            now=self._clock.now(),
        )
        return sign_request(question).certificate


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def maker(clock, authority_files):
    return InProcess(clock, authority_files)
