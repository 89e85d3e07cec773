"""klet's embedded API as an API server in a process of its own, where upstream's is not at hand.

It authenticates users by their certificates and authorizes everything for them; random tokens are not valid.
"""

import argparse
import asyncio
import ssl
import sys

import uvloop

from klet.aio.clock import SystemClock
from klet.embedded.review_answers import AllowEverything
from klet.embedded.server import build_api, serving
from klet.embedded.store import Store


async def serve(*, port: int, context: ssl.SSLContext) -> None:
    api = build_api(store=Store.open(), tokens={}, rights=AllowEverything(), clock=SystemClock())
    async with serving(api, host="127.0.0.1", port=port, context=context):
        await asyncio.Event().wait()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.hostile.embedded", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--authority", required=True)
    parser.add_argument("--certificate", required=True)
    parser.add_argument("--key", required=True)
    options = parser.parse_args()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(options.certificate, options.key)
    context.load_verify_locations(options.authority)
    context.verify_mode = ssl.CERT_OPTIONAL
    uvloop.run(serve(port=options.port, context=context))
    return 0


if __name__ == "__main__":
    sys.exit(main())
