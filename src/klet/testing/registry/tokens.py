"""A token server for a registry of tests: who logs in gets a JWT for the repositories that were asked for.

It speaks both forms that runtimes use: GET with a basic login, and POST with a form (OAuth 2).
"""

import json
import socket
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final
from uuid import uuid4

from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from klet.aio.clock import Clock, SystemClock

USER: Final = "user"
PASSWORD: Final = "right-pass"  # noqa: S105 - of nothing but the registry that a test starts
_ISSUER: Final = "klet tests"
_SERVICE: Final = "klet registry"
_LIFE: Final = timedelta(hours=1)
_NUMBER_BYTES: Final = 32


class TokenServer:
    """Issues tokens. The registry trusts the certificate that it writes into a directory."""

    def __init__(self, *, directory: Path, logins: Mapping[str, str], clock: Clock) -> None:
        # Bound at once: another test run may look for free ports at this moment.
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._port: int = self._socket.getsockname()[1]
        self._logins = logins
        self._clock = clock
        self._key = generate_private_key(SECP256R1())
        certificate = self._certify()
        self._certificate = b64encode(certificate.public_bytes(Encoding.DER)).decode()
        self._trusted = directory / "token-server.pem"
        self._trusted.write_bytes(certificate.public_bytes(Encoding.PEM))
        self.issued: list[tuple[str, tuple[str, ...]]] = []
        """To whom, and for what, in order."""
        self.refused = 0

    def registry_settings(self) -> Mapping[str, Mapping[str, str]]:
        """Return the section `auth` of a registry's configuration."""
        return {
            "token": {
                "realm": f"http://127.0.0.1:{self._port}/token",
                "service": _SERVICE,
                "issuer": _ISSUER,
                "rootcertbundle": str(self._trusted),
            }
        }

    def authorize(self, repository: str) -> str:
        """Return a header `Authorization` that may push to a repository."""
        return f"Bearer {self._issue(USER, (f'repository:{repository}:pull,push',))}"

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        app = web.Application()
        app.router.add_get("/token", self._get)
        app.router.add_post("/token", self._post)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        try:
            await web.SockSite(runner, self._socket).start()
            yield
        finally:
            await runner.cleanup()

    async def _get(self, request: web.Request) -> web.Response:
        scheme, _, encoded = request.headers.get("Authorization", "").partition(" ")
        user, _, password = b64decode(encoded).decode().partition(":") if scheme == "Basic" else ("", "", "")
        return self._answer(user, password, request.query.getall("scope", []))

    async def _post(self, request: web.Request) -> web.Response:
        form = {name: value for name, value in (await request.post()).items() if isinstance(value, str)}
        return self._answer(form.get("username", ""), form.get("password", ""), form.get("scope", "").split())

    def _answer(self, user: str, password: str, scopes: Sequence[str]) -> web.Response:
        if self._logins.get(user) != password:
            self.refused += 1
            return web.json_response({"errors": [{"code": "UNAUTHORIZED", "message": "wrong login"}]}, status=401)
        self.issued.append((user, tuple(scopes)))
        token = self._issue(user, [scope.replace(":pull,push", ":pull") for scope in scopes])
        return web.json_response({"token": token, "access_token": token, "expires_in": int(_LIFE.total_seconds())})

    def _issue(self, user: str, scopes: Iterable[str]) -> str:
        now = int(self._clock.now().timestamp())
        parts = [scope.split(":") for scope in scopes]
        claims = {
            "iss": _ISSUER,
            "sub": user,
            "aud": _SERVICE,
            "iat": now,
            "nbf": now - 60,
            "exp": now + int(_LIFE.total_seconds()),
            "jti": uuid4().hex,
            "access": [
                {"type": kind, "name": ":".join(name), "actions": actions.split(",")} for kind, *name, actions in parts
            ],
        }
        header = {"typ": "JWT", "alg": "ES256", "x5c": [self._certificate]}
        signed = f"{_part(json.dumps(header).encode())}.{_part(json.dumps(claims).encode())}"
        numbers = decode_dss_signature(self._key.sign(signed.encode(), ECDSA(SHA256())))
        signature = b"".join(number.to_bytes(_NUMBER_BYTES, "big") for number in numbers)
        return f"{signed}.{_part(signature)}"

    def _certify(self) -> x509.Certificate:
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "klet tests")])
        now = self._clock.now()
        builder = x509.CertificateBuilder(
            issuer_name=name,
            subject_name=name,
            public_key=self._key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=now - timedelta(days=1),
            not_valid_after=now + timedelta(days=1),
        )
        return builder.sign(self._key, SHA256())


@asynccontextmanager
async def run_token_server(
    directory: Path, *, logins: Mapping[str, str] | None = None, clock: Clock | None = None
) -> AsyncIterator[TokenServer]:
    """Run a token server for these passwords by user; it is one login, of `USER`, if none are named."""
    known = {USER: PASSWORD} if logins is None else logins
    server = TokenServer(directory=directory, logins=known, clock=clock or SystemClock())
    async with server.serve():
        yield server


def basic(user: str, password: str) -> str:
    """Return the header of a login by name and password."""
    return f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"


def _part(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
