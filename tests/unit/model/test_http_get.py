import tracemalloc

import pytest
from msgspec.structs import replace

from klet.api.container import ContainerPort
from klet.api.handlers import HTTPGetAction, HTTPHeader
from klet.model.http_get import (
    HOOK_AGENT,
    PROBE_AGENT,
    Address,
    PortError,
    build_address,
    build_headers,
    build_http_get,
    follow,
    resolve_port,
)
from klet.testing.builders import make_container

CONTAINER = replace(make_container("main"), ports=(ContainerPort(name="web", container_port=8080),))


@pytest.mark.parametrize(
    ("path", "url", "target"),
    [
        pytest.param("/healthz", "http://h:1/healthz", "/healthz", id="plain"),
        pytest.param("healthz", "http://h:1/healthz", "/healthz", id="a missing slash is added"),
        pytest.param("", "http://h:1", "/", id="empty"),
        pytest.param("?q", "http://h:1?q", "/?q", id="only a query"),
        pytest.param("/a b", "http://h:1/a%20b", "/a%20b", id="a blank is escaped"),
        pytest.param("/a%2Fb?x=1 2#f", "http://h:1/a%2Fb?x=1 2#f", "/a%2Fb?x=1 2", id="query and fragment"),
        pytest.param("/a#f", "http://h:1/a#f", "/a", id="a fragment is not sent"),
        pytest.param("/%zz?q", "http://h:1/%25zz%3Fq", "/%25zz%3Fq", id="a bad escape makes all of it literal"),
        pytest.param("/?a=%zz", "http://h:1/?a=%zz", "/?a=%zz", id="a query is not looked at"),
        pytest.param("/a\x01b", "http://h:1/a%01b", "/a%01b", id="a control character"),
        pytest.param("//h/p", "http://h:1/p", "/p", id="a host in the path is dropped"),
        pytest.param("/é", "http://h:1/%C3%A9", "/%C3%A9", id="letters beyond ASCII"),
        pytest.param("/a[1];b,c!'()*", "http://h:1/a[1];b,c!'()*", "/a[1];b,c!'()*", id="marks that may stand"),
        pytest.param('/a"b%2F', "http://h:1/a%22b/", "/a%22b/", id="one bad letter and all is escaped again"),
    ],
)
def test_build_address(path, url, target):
    assert build_address("http", "h", 1, path) == Address("http", "h", 1, target, url)


def test_an_ipv6_address_has_brackets():
    assert build_address("https", "fd00::1", 443, "/x").url == "https://[fd00::1]:443/x"


@pytest.mark.parametrize(
    ("port", "want"),
    [
        pytest.param(80, 80, id="a number"),
        pytest.param("web", 8080, id="a name"),
        pytest.param("81", 81, id="a number as text"),
    ],
)
def test_resolve_port(port, want):
    assert resolve_port(port, CONTAINER) == want


@pytest.mark.parametrize(
    ("port", "message"),
    [
        pytest.param(0, "invalid port number: 0", id="zero"),
        pytest.param(65536, "invalid port number: 65536", id="too large"),
        pytest.param("-1", "invalid port number: -1", id="negative text"),
        pytest.param("db", 'strconv.Atoi: parsing "db": invalid syntax', id="an unknown name"),
    ],
)
def test_bad_ports(port, message):
    with pytest.raises(PortError) as caught:
        resolve_port(port, CONTAINER)
    assert str(caught.value) == message


AGENT = ("User-Agent", "kube-probe/1.35")
ANY = ("Accept", "*/*")


@pytest.mark.parametrize(
    ("given", "want"),
    [
        pytest.param([], [AGENT, ANY], id="none"),
        pytest.param([("x-a", "1"), ("X-A", "2")], [("X-A", "1"), ("X-A", "2"), AGENT, ANY], id="repeated"),
        pytest.param([("user-agent", "me")], [("User-Agent", "me"), ANY], id="own agent"),
        pytest.param([("User-Agent", "")], [("User-Agent", ""), ANY], id="no agent"),
        pytest.param([("Accept", "text/plain")], [("Accept", "text/plain"), AGENT], id="own accept"),
        pytest.param([("Accept", "")], [AGENT], id="no accept"),
    ],
)
def test_build_headers(given, want):
    headers = [HTTPHeader(name=name, value=value) for name, value in given]
    assert build_headers(headers, agent=PROBE_AGENT) == tuple(want)


def test_build_http_get():
    action = HTTPGetAction(
        path="/live", port="web", scheme="HTTPS", http_headers=(HTTPHeader(name="host", value="shop"),)
    )
    request = build_http_get(action, CONTAINER, pod_ip="10.1.0.5", agent=HOOK_AGENT)
    assert request.address.url == "https://10.1.0.5:8080/live"
    assert request.host == "shop"
    assert ("User-Agent", "kube-lifecycle/1.35") in request.headers
    named = build_http_get(replace(action, host="example"), CONTAINER, pod_ip="10.1.0.5", agent=HOOK_AGENT)
    assert named.address.url == "https://example:8080/live"


@pytest.mark.parametrize(
    ("location", "url", "port", "target"),
    [
        pytest.param("/x?y", "http://h:81/x?y", 81, "/x?y", id="an absolute path"),
        pytest.param("x", "http://h:81/a/x", 81, "/a/x", id="a relative path"),
        pytest.param("?z", "http://h:81/a/b?z", 81, "/a/b?z", id="only a query"),
        pytest.param("https://other/x", "https://other/x", 443, "/x", id="another host and scheme"),
        pytest.param("//other:5/x", "http://other:5/x", 5, "/x", id="another host"),
    ],
)
def test_follow(location, url, port, target):
    address = follow(build_address("http", "h", 81, "/a/b?q"), location)
    assert address is not None
    assert (address.url, address.port, address.target) == (url, port, target)


def test_a_location_that_cannot_be_read():
    assert follow(build_address("http", "h", 81, "/"), "http://h:x/") is None


@pytest.mark.parametrize("location", ["http://h:81/a\x00b", "/a\x01b", "\x7f", "http://h/?\x0b"])
def test_a_redirection_with_control_characters_leads_nowhere(location):
    """They would be in the Referer of the next request."""
    assert follow(build_address("http", "h", 81, "/"), location) is None


@pytest.mark.parametrize("location", ["? a", "/x? HTTP/1.1", "http://h:81/?a b"])
def test_a_redirection_adds_no_words_to_the_request_line(location):
    address = follow(build_address("http", "h", 81, "/"), location)
    assert address is not None
    assert " " not in address.target


def test_a_long_location_takes_little_memory():
    """A container may answer a probe with tens of KiB of it, which a pattern that goes back took hundreds of times."""
    location = "/" + "- " * 32_000
    tracemalloc.start()
    try:
        assert follow(build_address("http", "127.0.0.1", 80, "/"), location.replace(" ", "%20")) is not None
        assert tracemalloc.get_traced_memory()[1] < 64 * len(location)
    finally:
        tracemalloc.stop()


def test_escapes_take_little_memory():
    """A container that is asked again and again may make an address of hundreds of KiB of them."""
    location = "\ufffd" * 32_000 + "/x"
    following = follow(build_address("http", "127.0.0.1", 80, "/"), location)
    tracemalloc.start()
    try:
        assert follow(following, location) is not None
        assert tracemalloc.get_traced_memory()[1] < 128 * len(location)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("before", range(4))
def test_no_escape_is_cut_in_two(before):
    path = "/" + "a" * (4090 + before) + "%20%ef%bf%bd\ufffd" * 3000
    wanted = "/" + "a" * (4090 + before) + "%20%EF%BF%BD%EF%BF%BD" * 3000
    assert build_address("http", "127.0.0.1", 80, path).target == wanted
