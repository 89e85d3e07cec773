"""Where things are: sockets, URLs, files and cgroups that a setting names. Functions return what is wrong with one.

Upstream finds out about most of these when it first uses them, and then retries without end.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from yarl import URL

LONGEST_SOCKET: Final = 107
"""Bytes of a socket's path that Linux can bind or connect to."""
LONGEST_PATH: Final = 4095

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_CREDENTIALS: Final = re.compile(r"(^|//)[^/?#]*@")
_QUERY: Final = re.compile(r"\?.+", re.DOTALL)
MASK: Final = "<masked>"
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_UNIX: Final = "unix"
_EXAMPLE: Final = "unix:///run/containerd/containerd.sock"


def find_endpoint_problem(endpoint: str) -> str:
    """Return what keeps a text from naming a runtime's socket; nothing: it is good."""
    match = _SCHEME.fullmatch(endpoint)
    scheme, rest = (match[1], match[2]) if match else (_UNIX, endpoint)
    if scheme == "tcp":
        return f"only support unix socket endpoint: write a socket such as {_EXAMPLE}"
    if scheme != _UNIX:
        return f'protocol "{scheme}" not supported: write a socket such as {_EXAMPLE}'
    problem = find_socket_problem(rest.removeprefix("//") if match else rest)
    return f"{problem}: write {_EXAMPLE}, with three slashes" if problem and match else problem


def is_bare_path(endpoint: str) -> bool:
    """Return whether an endpoint is written without its scheme, which is deprecated."""
    return bool(endpoint) and not _SCHEME.fullmatch(endpoint)


def find_socket_problem(path: str) -> str:
    if not path.startswith("/"):
        return "the socket must be an absolute path"
    if path.endswith(("/", "/.", "/..")):
        return "the socket must be a file, not a directory"
    if len(path.encode(errors="surrogateescape")) > LONGEST_SOCKET:
        return f"the path of a socket must have at most {LONGEST_SOCKET} bytes"
    return ""


def find_path_problem(path: str) -> str:
    return (
        f"a path must have at most {LONGEST_PATH} bytes"
        if len(path.encode(errors="surrogateescape")) > LONGEST_PATH
        else ""
    )


def find_url_problem(url: str) -> str:
    """Return what keeps a text from being the URL of manifests."""
    rule = "must be a URL such as https://example.com/pods.yaml"
    if any(character.isspace() for character in url):
        return f"{rule}, without blanks"
    try:
        parsed = URL(url)
        port = parsed.port
    except ValueError:
        return rule
    if parsed.scheme not in ("http", "https"):
        return f"{rule}: only http and https are supported"
    if not parsed.host or port == 0:
        return rule
    return ""


def hide_credentials(url: str) -> str:
    """Return a URL to show: without a user, a password or a query, which may hold a token.

    A text that is no URL may hold a password all the same.
    """
    return _QUERY.sub(f"?{MASK}", _CREDENTIALS.sub(rf"\1{MASK}@", url))


def find_header_problems(headers: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Return what keeps headers from being sent. Values are secrets and never quoted."""
    for name, values in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            yield f'"{name}" is not the name of a header: write letters, digits and dashes'
        elif not all(_is_header_value(value) for value in values):
            yield f'the value of "{name}" must not contain line breaks or other control characters'


def find_cgroup_problem(name: str) -> str:
    if {".", ".."} & set(name.split("/")):
        return 'the path of a cgroup must not have "." or ".." in it'
    return ""


def _is_header_value(value: str) -> bool:
    return all(character == "\t" or (character >= " " and character != "\x7f") for character in value)
