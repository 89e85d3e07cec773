"""Kubeconfig files, which people copy together from anywhere.

What is accepted must be usable: the server is an address, and files that it names are absolute paths.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from klet.kube.access import Access, PemSource
from klet.kube.errors import KubeconfigError
from klet.kube.kubeconfig import parse_kubeconfig
from klet.testing.fuzz.mutators import amplify_bytes, change_bytes, change_json, change_lines, choose_of, put_words
from klet.testing.fuzz.target import Flaw, FuzzTarget, Limits, Run

Parse: TypeAlias = Callable[[bytes], Access]

_CONFIG: Final = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "c",
    "clusters": [
        {
            "name": "k",
            "cluster": {
                "server": "https://127.0.0.1:6443",
                "certificate-authority-data": "YQ==",
                "tls-server-name": "n",
                "proxy-url": "http://p:1",
            },
        }
    ],
    "users": [
        {"name": "u", "user": {"client-certificate": "c.pem", "client-key": "k.pem", "token": "t", "tokenFile": "/t"}},
        {
            "name": "x",
            "user": {
                "exec": {
                    "apiVersion": "client.authentication.k8s.io/v1",
                    "command": "./get",
                    "args": ["a"],
                    "env": [{"name": "A", "value": "b"}],
                    "installHint": "h",
                    "provideClusterInfo": True,
                }
            },
        },
    ],
    "contexts": [
        {"name": "c", "context": {"cluster": "k", "user": "u"}},
        {"name": "d", "context": {"cluster": "k", "user": "x", "namespace": "n"}},
    ],
}
SEEDS: Final = (
    json.dumps(_CONFIG).encode(),
    json.dumps({**_CONFIG, "current-context": "d"}).encode(),
    (
        b"apiVersion: v1\nkind: Config\nclusters:\n- name: k\n"
        b"  cluster: {server: 'http://[::1]:8080', insecure-skip-tls-verify: true}\n"
        b"contexts:\n- name: c\n  context: {cluster: k}\n"
    ),
    b"",
)
VALUES: Final = (
    "http://[",
    "https://[::1",
    "https://a:b",
    "https://a:99999",
    "https://u:p@h/",
    "https://\u2100.com",
    "http://]",
    "https:///",
    "YQ=",
    "é",
    "Y Q",
    "\x00",
    "~/k",
    "client.authentication.k8s.io/v1beta1",
    "https://h?x#y",
    "x" * 5000,
    "https://" + "x" * 5000,
    "http://a\nb",
)
KEYS: Final = (
    "name",
    "cluster",
    "user",
    "context",
    "server",
    "exec",
    "command",
    "token",
    "username",
    "auth-provider",
    "clusters",
    "users",
    "contexts",
    "current-context",
    "certificate-authority-data",
    "client-key-data",
    "client-certificate-data",
    "insecure-skip-tls-verify",
    "env",
    "proxy-url",
)
WORDS: Final = (
    *(value.encode("utf-8", "surrogatepass") for value in VALUES),
    b"&a ",
    b"*a",
    b"\xff",
    b"{}",
    b"[]",
)
_PATH: Final = Path("/etc/klet/kubeconfig")


def kubeconfigs(parse: Parse | None = None) -> FuzzTarget:
    """Return the target; another parser than klet's shows that its faults are found."""
    read = parse or parse_bytes

    @contextmanager
    def opened() -> Iterator[Run]:
        yield lambda data: check_kubeconfig(read, data)

    return FuzzTarget(
        name="kubeconfig",
        summary="kubeconfig files: contexts, servers, credentials",
        seeds=lambda: SEEDS,
        mutate=choose_of(
            (change_json(KEYS, VALUES), change_json(KEYS, VALUES), change_bytes, change_lines, put_words(WORDS))
        ),
        amplify=amplify_bytes(),
        opened=opened,
        limits=Limits(memory=64 << 20, memory_per_byte=2048, seconds=10),
    )


def parse_bytes(data: bytes) -> Access:
    """Parse as a file of these bytes is read."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise KubeconfigError(f"invalid kubeconfig: {error.reason}") from error
    return parse_kubeconfig(text, path=_PATH)


def check_kubeconfig(parse: Parse, data: bytes) -> object:
    """Read the file; raises KubeconfigError or Flaw."""
    access = parse(data)
    parts = urlsplit(access.server)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise Flaw("takes a server that is no address")
    for address in (access.server, access.proxy):
        if any(not each.isprintable() for each in address):
            raise Flaw("takes an address with control characters")
        if address and urlsplit(address).port == 0:
            raise Flaw("takes port 0")
    login = access.login
    materials = (access.authority, *((login.pair.certificate, login.pair.key) if login.pair else ()))
    paths = [each.path for each in materials if isinstance(each, PemSource) and each.path is not None]
    for path in (*paths, *((login.token_file,) if login.token_file else ())):
        if not path.is_absolute() or "\x00" in str(path):
            raise Flaw("takes a path that cannot be one")
    if login.plugin is not None and any("\x00" in text for text in (login.plugin.command, *login.plugin.args)):
        raise Flaw("takes a command that cannot be one")
    return type(access.authority).__name__, login.plugin is None, login.pair is None
