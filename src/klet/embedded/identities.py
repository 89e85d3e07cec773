"""Authentication: client certificates, fixed bearer tokens, and service-account tokens that this server made itself.

Tokens are signed with a key of the server's own (HMAC): no other program verifies them, clients ask the API instead.
"""

import base64
import binascii
import hashlib
import hmac
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
from msgspec import Struct, field

from klet.aio.clock import Clock
from klet.embedded.store import Json, Key, Store

ISSUER: Final = "https://kubernetes.default.svc"
_LEEWAY: Final = timedelta(minutes=1)
_AUTHENTICATED: Final = "system:authenticated"
_EXTRA: Final = "authentication.kubernetes.io"


class ApiUser(Struct, frozen=True):
    """A user that the server authenticates."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def may_do_everything(self) -> bool:
        return "system:masters" in self.groups


class Bound(Struct, frozen=True):
    """The account a token speaks for, and the object it dies with."""

    namespace: str
    account: str
    audiences: tuple[str, ...]
    object_kind: str = ""
    object_name: str = ""


class Identities:
    """Issues tokens and authenticates users."""

    def __init__(self, *, store: Store, tokens: Mapping[str, ApiUser], key: bytes, clock: Clock) -> None:
        self._store = store
        self._tokens = tokens
        self._key = key
        self._clock = clock

    def identify(self, authorization: str, certificate: Mapping[str, Any] | None) -> ApiUser | None:
        """Return the user of a request, or None."""
        if certificate:
            return _named_in(certificate)
        scheme, _, token = authorization.partition(" ")
        return self.review(token.strip(), (ISSUER,)) if scheme.lower() == "bearer" else None

    def review(self, token: str, audiences: Sequence[str]) -> ApiUser | None:
        """Return whom a token stands for, if it is good now and for one of the audiences."""
        if (known := self._tokens.get(token)) is not None:
            return known
        claims = self._claims(token)
        if claims is None or not set(claims["aud"]) & set(audiences or (ISSUER,)):
            return None
        now = self._clock.now().timestamp()
        if now > claims["exp"] + _LEEWAY.total_seconds() or not self._is_alive(claims["kubernetes.io"]):
            return None
        return _user_of(claims)

    def issue(self, bound: Bound, lifetime: timedelta) -> tuple[str, datetime]:
        """Return a token and when it runs out. The account and the bound object must exist."""
        now = self._clock.now()
        private: Json = {"namespace": bound.namespace}
        account = self._store.get(Key("serviceaccounts", bound.namespace, bound.account))
        private["serviceaccount"] = _reference(account)
        if bound.object_kind == "Pod":
            pod = self._store.get(Key("pods", bound.namespace, bound.object_name))
            private["pod"] = _reference(pod)
            node_name = (pod or {}).get("spec", {}).get("nodeName", "")
            if node_name and (node := self._store.get(Key("nodes", "", node_name))) is not None:
                private["node"] = _reference(node)
        claims = {
            "iss": ISSUER,
            "sub": f"system:serviceaccount:{bound.namespace}:{bound.account}",
            "aud": list(bound.audiences or (ISSUER,)),
            "iat": int(now.timestamp()),
            "nbf": int(now.timestamp()),
            "exp": int((now + lifetime).timestamp()),
            "jti": str(uuid.uuid4()),
            "kubernetes.io": private,
        }
        signed = f"{_segment({'alg': 'HS256', 'typ': 'JWT'})}.{_segment(claims)}"
        return f"{signed}.{self._signature(signed)}", now + lifetime

    def _claims(self, token: str) -> Json | None:
        signed, _, signature = token.rpartition(".")
        if not signed or not token.isascii() or not hmac.compare_digest(signature, self._signature(signed)):
            return None
        try:
            claims: Json = msgspec.json.decode(_unpadded(signed.partition(".")[2]))
        except (msgspec.DecodeError, binascii.Error, ValueError):
            return None
        return claims

    def _is_alive(self, private: Mapping[str, Any]) -> bool:
        """Return whether the account and the bound objects are still the ones the token was made for."""
        namespace = private["namespace"]
        places = {
            "serviceaccount": Key("serviceaccounts", namespace, ""),
            "pod": Key("pods", namespace, ""),
            "node": Key("nodes", "", ""),
        }
        for name, place in places.items():
            if (wanted := private.get(name)) is not None:
                found = self._store.get(place._replace(name=wanted["name"]))
                if found is None or found["metadata"]["uid"] != wanted["uid"]:
                    return False
        return True

    def _signature(self, signed: str) -> str:
        return _padless(hmac.digest(self._key, signed.encode(), hashlib.sha256))


def _user_of(claims: Json) -> ApiUser:
    private = claims["kubernetes.io"]
    namespace = private["namespace"]
    extra = {f"{_EXTRA}/credential-id": (f"JTI={claims['jti']}",)}
    for name in ("pod", "node"):
        if name in private:
            extra[f"{_EXTRA}/{name}-name"] = (private[name]["name"],)
            extra[f"{_EXTRA}/{name}-uid"] = (private[name]["uid"],)
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", _AUTHENTICATED)
    return ApiUser(claims["sub"], uid=private["serviceaccount"]["uid"], groups=groups, extra=extra)


def _named_in(certificate: Mapping[str, Any]) -> ApiUser | None:
    """Return common name and organizations, as the API reads a client certificate."""
    parts = [pair for entry in certificate.get("subject", ()) for pair in entry]
    names = [value for name, value in parts if name == "commonName"]
    groups = tuple(value for name, value in parts if name == "organizationName")
    return ApiUser(names[0], groups=(*groups, _AUTHENTICATED)) if names else None


def _reference(obj: Mapping[str, Any] | None) -> Json:
    metadata = {} if obj is None else obj["metadata"]
    return {"name": metadata.get("name", ""), "uid": metadata.get("uid", "")}


def _segment(data: Mapping[str, Any]) -> str:
    return _padless(msgspec.json.encode(data))


def _padless(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _unpadded(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
