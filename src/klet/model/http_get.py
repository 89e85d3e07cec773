"""GET requests as httpGet probes and lifecycle hooks describe them: address, target and headers."""

import re
from collections.abc import Iterator, Sequence
from urllib.parse import quote, unquote_to_bytes, urlsplit

from msgspec import Struct
from msgspec.structs import replace

from klet.api.container import Container
from klet.api.handlers import HTTPGetAction, HTTPHeader
from klet.errors import KletError
from klet.version import KUBERNETES_VERSION

PROBE_AGENT = "kube-probe"
HOOK_AGENT = "kube-lifecycle"

_MINOR_VERSION = KUBERNETES_VERSION.removeprefix("v").rpartition(".")[0]
# Possessive: going back would take hundreds of bytes of memory for each character.
_ESCAPED_WELL = re.compile(r"(?:[\w.~!$&'()*+,;=:@\[\]/-]++|%[0-9A-Fa-f]{2})*+", re.ASCII)
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_BAD_VALUE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_HOST = re.compile(r"[\w!$%&'()*+,.:;=@\[\]~-]*", re.ASCII)
# The client sends these itself, or a GET has none of them.
_NOT_REPEATED = frozenset({"Host", "User-Agent", "Content-Length", "Transfer-Encoding", "Trailer"})
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


_PIECE = 4096


class PortError(KletError):
    """A port that cannot be resolved."""


class HeaderError(KletError):
    """A header that cannot be sent."""


class Address(Struct, frozen=True):
    """Where a request goes, and what it asks for."""

    scheme: str
    host: str
    port: int
    target: str
    """Path and query, as the request line has them."""
    url: str
    """The whole, as messages name it."""

    @property
    def authority(self) -> str:
        return join_host_port(self.host, self.port)


class HttpGet(Struct, frozen=True, kw_only=True):
    """A request that is ready to be sent, any number of times."""

    address: Address
    host: str = ""
    """The Host header, if it is not simply the address."""
    headers: tuple[tuple[str, str], ...] = ()
    wire: bytes
    """The request as it is sent to the address."""


def build_http_get(action: HTTPGetAction, container: Container, *, pod_ip: str, agent: str) -> HttpGet:
    """Return the request of a probe or hook; `agent` is PROBE_AGENT or HOOK_AGENT. Raises PortError or HeaderError."""
    port = resolve_port(action.port, container)
    address = build_address((action.scheme or "http").lower(), action.host or pod_ip, port, action.path)
    headers = build_headers(action.http_headers, agent=agent)
    host = next((value for name, value in headers if name == "Host"), "")
    return HttpGet(address=address, host=host, headers=headers, wire=write_request(address, host, headers))


def resolve_port(port: int | str, container: Container) -> int:
    """Return the port: a number, the name of one of the container's ports, or a number written as text."""
    number = port if isinstance(port, int) else _named_port(port, container)
    if not 0 < number < 65536:
        raise PortError(f"invalid port number: {number}")
    return number


def build_address(scheme: str, host: str, port: int, path: str) -> Address:
    """Escape the path if it needs it; one that makes no sense is taken literally, question marks and all."""
    before_query, mark, after = path.partition("?")
    query, _, fragment = after.partition("#")
    if _CONTROL.search(path) or _BAD_ESCAPE.search(before_query):
        before_query, mark, query, fragment = quote(path, safe="$&+,/:;=@"), "", "", ""
    elif mark == "":
        before_query, _, fragment = before_query.partition("#")
    if before_query.startswith("//"):  # what stands there reads as a host, and ours replaces it
        before_query = "/" + before_query[2:].partition("/")[2]
    if before_query and not before_query.startswith("/"):
        before_query = "/" + before_query
    escaped = _escape(before_query)
    text = f"{escaped}{mark}{query}" + (f"#{fragment}" if fragment else "")
    target = f"{escaped or '/'}{mark}{query}"
    return Address(scheme, host, port, target, f"{scheme}://{join_host_port(host, port)}{text}")


def follow(address: Address, location: str) -> Address | None:
    """Return where a redirection leads; None if that cannot be read as an address, as with control characters in Go."""
    if _BAD_VALUE.search(location):
        return None
    try:
        parts = urlsplit(location)
        port = parts.port
    except ValueError:
        return None
    scheme = parts.scheme or address.scheme
    if parts.netloc:
        number = port or {"https": 443}.get(scheme, 80)
        path = parts._replace(scheme="", netloc="").geturl()
        made = build_address(scheme, parts.hostname or "", number, path)
        return Address(scheme, made.host, number, _one_word(made.target), location if parts.scheme else made.url)
    if parts.scheme:
        return Address(scheme, "", 0, location, location)
    path = location
    if not parts.path:
        path = address.target.partition("?")[0] + location
    elif not location.startswith("/"):
        path = address.target.partition("?")[0].rpartition("/")[0] + "/" + location
    made = build_address(scheme, address.host, address.port, path)
    return replace(made, target=_one_word(made.target))


def _one_word(target: str) -> str:
    """Escape blanks, which would end the target in the request line. (Upstream sends those of a pod's author.)"""
    return target.replace(" ", "%20")


def build_headers(given: Sequence[HTTPHeader], *, agent: str) -> tuple[tuple[str, str], ...]:
    """Return the headers in order, with User-Agent and Accept unless given; given as empty they are left out."""
    headers = [(canonical_name(header.name), header.value) for header in given]
    names = {name for name, _ in headers}
    if "User-Agent" not in names:
        headers.append(("User-Agent", user_agent(agent)))
    if "Accept" not in names:
        headers.append(("Accept", "*/*"))
    elif next(value for name, value in headers if name == "Accept") == "":
        headers = [(name, value) for name, value in headers if name != "Accept"]
    return tuple(headers)


def write_request(address: Address, host: str, headers: Sequence[tuple[str, str]], *, referer: str = "") -> bytes:
    """Return the bytes of a request. Raises HeaderError in the words of Go's net/http."""
    for name, value in headers:
        if not _TOKEN.fullmatch(name):
            raise HeaderError(f'Get "{address.url}": net/http: invalid header field name "{name}"')
        if _BAD_VALUE.search(value):
            raise HeaderError(f'Get "{address.url}": net/http: invalid header field value for "{name}"')
    host = host or address.authority
    lines = [f"GET {address.target} HTTP/1.1", f"Host: {host if _HOST.fullmatch(host) else ''}"]
    if agent := next((value for name, value in headers if name == "User-Agent"), ""):
        lines.append(f"User-Agent: {agent.strip()}")
    others = [header for header in headers if header[0] not in _NOT_REPEATED]
    if referer:
        others.append(("Referer", referer))
    others.sort(key=lambda header: header[0])
    lines += [f"{name}: {value.strip()}" for name, value in others]
    lines.append("Connection: close\r\n\r\n")
    return "\r\n".join(lines).encode("utf-8", "surrogateescape")


def user_agent(agent: str) -> str:
    """Return the name with the major and minor version of Kubernetes: `kube-probe/1.35`."""
    return f"{agent}/{_MINOR_VERSION}"


def canonical_name(name: str) -> str:
    """Return `x-my-header` as `X-My-Header`; what is not a header name stays as it is."""
    return "-".join(part.capitalize() for part in name.split("-")) if _TOKEN.fullmatch(name) else name


def join_host_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _named_port(name: str, container: Container) -> int:
    for port in container.ports:
        if port.name == name:
            return port.container_port
    if re.fullmatch(r"[+-]?[0-9]+", name):
        return int(name)
    raise PortError(f'strconv.Atoi: parsing "{name}": invalid syntax')


def _escape(path: str) -> str:
    if _ESCAPED_WELL.fullmatch(path):
        return path
    return "".join(quote(unquote_to_bytes(piece), safe="$&+,/:;=@") for piece in _pieces(path))


def _pieces(path: str) -> Iterator[str]:
    """Cut a path where no escape is: what makes of each escape an object of its own does so for a part at a time."""
    start = 0
    while start < len(path):
        end = start + _PIECE
        escape = path.rfind("%", end - 2, end)
        yield path[start : (escape if escape > start else end)]
        start = escape if escape > start else end
