"""Random paths, queries, methods and headers on every port of an agent: nothing of them may stay in it.

A few seconds in the suite; `KLET_FUZZ_SECONDS=60` for the minute that a release needs, with other requests each time
if `KLET_FUZZ_SEED` says so.
"""

import asyncio
import os
import random
import re
import ssl
from contextlib import suppress

from klet.server.endpoints import ENDPOINT_GROUPS

SECONDS = float(os.environ.get("KLET_FUZZ_SECONDS", "5"))
SEED = int(os.environ.get("KLET_FUZZ_SEED", "1"))
CLIENTS, REQUESTS = 6, 8
GROWTH = 16 << 20
"""Bytes of memory that the agent may need more than after the first requests."""
PATHS = [path for group in ENDPOINT_GROUPS for endpoint in group.endpoints for path in endpoint.paths]
LABELS = {
    "method": {"OPTIONS", "GET", "HEAD", "POST", "PUT", "DELETE", "TRACE", "CONNECT", "other"},
    "path": {each.label or group.label for group in ENDPOINT_GROUPS for each in group.endpoints}
    | {"stats", "logs", "other"},
    "server_type": {"readwrite", "readonly"},
    "long_running": {"true", "false"},
}
"""The values that the labels of requests may have."""
PART = re.compile(r"{\w+(?::[^{}]*)?}")
PARTS = ("default", "web", "main", "..", "%2e%2e", "%2f", "%00", "%0d%0a", "%ff", "a" * 300, "*", "profile", "cmdline")
PARTS += ("{}", "syslog", "index.html", "%25", "\\", "\xe9", "x;y", "~", "a:b")
NAMES = ("query", "sinceTime", "untilTime", "tailLines", "pattern", "boot", "seconds", "follow", "previous", "stream")
NAMES += ("command", "input", "output", "error", "tty", "port", "cmd", "timeout", "verbose", "exclude", "limitBytes")
NAMES += ("only_cpu_and_memory", "sinceSeconds", "tail", "%00", "")
VALUES = (
    "",
    "1",
    "0",
    "-1",
    "true",
    "kubelet",
    "/syslog",
    "..",
    "a" * 500,
    "%28%28",
    "%5b",
    "x%2b%2b",
    "9" * 40,
    "%ff",
)
VALUES += ("2026-01-02T03:04:05Z", "9999-99-99T00:00:00Z", "%0d%0a", "all", "Stdout", "ping", "%F0%9F%90%B3", "1e9")
HEADERS = {
    "Range": ("bytes=0-0", "bytes=-1", "bytes=" + "0-0," * 100, "x", "bytes=9-1", "bytes=0-" + "9" * 30),
    "If-Modified-Since": ("Wed, 21 Oct 2015 07:28:00 GMT", "x", "Mon, 99 Foo 99999 99:99:99 +9999", "0" * 200),
    "If-Range": ("x", "Wed, 21 Oct 2015 07:28:00 GMT"),
    "If-None-Match": ("*", '"x"'),
    "Accept": ("*/*", "application/json", "application/json;as=Flagz;v=v1alpha1;g=config.k8s.io", ";;,=", "x/y;q=z"),
    "Accept-Encoding": ("gzip", "gzip, br", "*;q=0"),
    "Authorization": ("Bearer nonsense", "Bearer " + "x" * 20000, "Basic eDp5", "\x01"),
    "Connection": ("Upgrade", "keep-alive", "close"),
    "Upgrade": ("SPDY/3.1", "websocket"),
    "Content-Encoding": ("gzip", "deflate"),
    "Expect": ("100-continue", "x"),
    "User-Agent": ("x" * 3000,),
    "X-Remote-User": ("admin",),
    "Content-Type": ("application/json", "multipart/form-data; boundary=x"),
}
METHODS = ("GET",) * 6 + ("POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "FOO")
BODIES = (b"", b"2", b"x", b"{}", b"a=b&c", b"9" * 100)


def build_request(chance):
    path = PART.sub(lambda _: chance.choice(PARTS), chance.choice(PATHS))
    if chance.random() < 0.4:
        path += "".join(f"/{chance.choice(PARTS)}" for _ in range(chance.randrange(4)))
    if chance.random() < 0.1:
        path = "/" + "".join(chr(chance.randrange(33, 127)) for _ in range(chance.randrange(40)))
    pairs = [f"{chance.choice(NAMES)}={chance.choice(VALUES)}" for _ in range(chance.randrange(4))]
    target = path + ("?" + "&".join(pairs) if pairs else "")
    names = chance.sample(sorted(HEADERS), chance.randrange(4))
    body = chance.choice(BODIES) if chance.random() < 0.2 else b""
    lines = [f"{chance.choice(METHODS)} {target} HTTP/1.1", "Host: node"]
    lines += [f"{name}: {chance.choice(HEADERS[name])}" for name in names]
    lines += [f"Content-Length: {len(body)}"] if body else []
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


async def converse(target, chance):
    """Send some requests on one connection, and read what comes; a server that says nothing is left alone."""
    port = chance.choice((target.port, target.port, target.port, target.read_only_port, target.healthz_port))
    who = chance.choice(("admin", "admin", None))
    context = target.pki.client(who) if port == target.port else None
    sent = 0
    with suppress(ConnectionError, ssl.SSLError, TimeoutError):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        try:
            for _ in range(REQUESTS):
                writer.write(build_request(chance))
                sent += 1
                async with asyncio.timeout(0.5):
                    if not await reader.read(1 << 16):
                        break
        finally:
            writer.transport.abort()
    return sent


async def fuzz(target, chance, *, seconds):
    """Send requests for so long, and until there are enough of them; return how many there were."""
    loop = asyncio.get_running_loop()
    end, counts = loop.time() + seconds, [0]

    async def client():
        while loop.time() < end or sum(counts) <= 10 * seconds:
            counts.append(await converse(target, chance))

    async with asyncio.TaskGroup() as group:
        for _ in range(CLIENTS):
            group.create_task(client())
    return sum(counts)


async def series(target):
    """The names and labels of all time series."""
    status, text = await target.ask("/metrics")
    assert status == 200
    return {line.rpartition(" ")[0] for line in text.splitlines() if line and not line.startswith("#")}


async def test_requests_leave_neither_memory_nor_series_nor_tracebacks(attack, monkeypatch, tmp_path, capsys):
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "journalctl").write_text("#!/bin/sh\necho kubelet.service\n")
    (programs / "journalctl").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    gates = {"NodeLogQuery": True, "ComponentFlagz": True, "ComponentStatusz": True}
    target = await attack.on(featureGates=gates, enableSystemLogQuery=True)
    chance = random.Random(SEED)
    async with attack.run(target, readOnlyPort=target.read_only_port):
        await fuzz(target, chance, seconds=SECONDS / 2)
        known, memory = await series(target), target.memory()
        count = await fuzz(target, chance, seconds=SECONDS)
        after, grown = await series(target), target.memory() - memory
        assert (await target.ask("/healthz"))[0] == 200
        log = target.agent.log
    with capsys.disabled():
        shown = f"{count} requests, memory {memory >> 20} MiB and {grown >> 10} KiB more"
        print(f"\n{shown}, {len(known)} and then {len(after)} series")  # noqa: T201 - figures for a release
    assert grown < GROWTH
    # Counts of requests have labels of closed sets: random requests come to new combinations of them for a long time.
    requests = {each for each in after if each.startswith("kubelet_http_")}
    words = {
        name: {value for each in requests for value in re.findall(rf'\b{name}="([^"]*)"', each)} for name in LABELS
    }
    assert {name: found - LABELS[name] for name, found in words.items()} == {name: set() for name in LABELS}
    assert len(after - requests) <= 1.1 * len({each for each in known if not each.startswith("kubelet_http_")})
    assert not any(part in each for each in after for part in ("a" * 300, "nonsense", "%2e", "syslog"))
    assert re.findall(r"Traceback.*?(?=\n[EWI]\d{4} |\Z)", log, re.DOTALL) == []
    assert [line for line in log.splitlines() if re.match(r"E\d{4} ", line)] == []
