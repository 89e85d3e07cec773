"""The listener of the embedded API, and the objects that every cluster has from the start."""

import secrets
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web
from msgspec import Struct

from klet.aio.clock import Clock
from klet.api.kinds import find_kind
from klet.embedded.faults import Faults
from klet.embedded.http import ApiHandler
from klet.embedded.identities import ApiUser, Identities
from klet.embedded.reading import Reader
from klet.embedded.registry import ObjectRegistry
from klet.embedded.review_answers import ReviewAnswers, Rights
from klet.embedded.store import Key, Store

NAMESPACES: Final = ("default", "kube-system", "kube-public", "kube-node-lease")
_STOP_SECONDS: Final = 0.1
"""Watches never end by themselves, and their readers come back anyway."""


class EmbeddedApi(Struct, frozen=True, kw_only=True):
    """One API server: its store and what tests and the single node do with it besides HTTP."""

    store: Store
    registry: ObjectRegistry
    identities: Identities
    faults: Faults
    handler: ApiHandler


def build_api(*, store: Store, tokens: Mapping[str, ApiUser], rights: Rights, clock: Clock) -> EmbeddedApi:
    """Wire an API server over a store, and fill that if it is new."""
    registry = ObjectRegistry(store=store, clock=clock)
    identities = Identities(store=store, tokens=tokens, key=secrets.token_bytes(32), clock=clock)
    faults = Faults()
    handler = ApiHandler(
        registry=registry,
        reader=Reader(store=store, clock=clock),
        questions=ReviewAnswers(store=store, identities=identities, rights=rights),
        identities=identities,
        faults=faults,
        clock=clock,
    )
    _fill(store, registry)
    return EmbeddedApi(store=store, registry=registry, identities=identities, faults=faults, handler=handler)


@asynccontextmanager
async def serving(
    api: EmbeddedApi, *, host: str, port: int = 0, context: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Serve until the block is left; gives the port."""
    runner = web.AppRunner(api.handler.application(), access_log=None, shutdown_timeout=_STOP_SECONDS)
    await runner.setup()
    try:
        site = web.TCPSite(runner, host, port, ssl_context=context)
        await site.start()
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def _fill(store: Store, registry: ObjectRegistry) -> None:
    namespace_kind, account_kind = find_kind("v1", "Namespace"), find_kind("v1", "ServiceAccount")
    assert namespace_kind is not None
    assert account_kind is not None
    for name in NAMESPACES:
        if store.get(Key("namespaces", "", name)) is None:
            registry.create(namespace_kind, "", {"metadata": {"name": name}})
            registry.create(account_kind, name, {"metadata": {"name": "default", "namespace": name}})
