"""Request smuggling: a body that a proxy before the node would read otherwise hides a request for somebody else.

Each hidden request would run a command. The connection has to end behind the answer to the first one.
"""

import pytest

pytestmark = pytest.mark.asyncio(loop_scope="session")

HIDDEN = b"POST /run/default/web/main?cmd=smuggled HTTP/1.1\r\nHost: n\r\nContent-Length: 0\r\n\r\n"
HEAD = b"POST /pods HTTP/1.1\r\nHost: n\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"


def with_header(*lines):
    return HEAD + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(with_header(b"Content-Length: 5", b"Transfer-Encoding: chunked") + b"0\r\n\r\n", id="both"),
        pytest.param(
            with_header(b"Transfer-Encoding: chunked", b"Content-Length: 5") + b"0\r\n\r\n", id="both, turned"
        ),
        pytest.param(with_header(b"Content-Length: 0", b"Content-Length: 90"), id="two lengths"),
        pytest.param(with_header(b"Content-Length: 0, 90"), id="two lengths in one"),
        pytest.param(with_header(b"Content-Length: +0"), id="a sign"),
        pytest.param(with_header(b"Content-Length: -1"), id="a negative length"),
        pytest.param(with_header(b"Content-Length: 0x0"), id="hexadecimal"),
        pytest.param(with_header(b"Content-Length: 0_0"), id="a Python number"),
        pytest.param(with_header(b"Content-Length: \xd9\xa0"), id="a digit of another script"),
        pytest.param(with_header(b"Content-Length: 0 0"), id="a space within"),
        pytest.param(with_header(b"Content-Length : 0"), id="a space before the colon"),
        pytest.param(with_header(b"Transfer-Encoding : chunked") + b"0\r\n\r\n", id="an encoding before a space"),
        pytest.param(with_header(b"Transfer-Encoding: xchunked") + b"0\r\n\r\n", id="an unknown encoding"),
        pytest.param(with_header(b"Transfer-Encoding: identity") + b"0\r\n\r\n", id="identity"),
        pytest.param(with_header(b"Transfer-Encoding: gzip, chunked") + b"0\r\n\r\n", id="two encodings"),
        pytest.param(with_header(b"Transfer-Encoding: chunked, identity") + b"0\r\n\r\n", id="chunked is not last"),
        pytest.param(with_header(CHUNKED[:-2], CHUNKED[:-2]) + b"0\r\n\r\n", id="chunked twice"),
        pytest.param(with_header(b"Transfer-Encoding:\x0bchunked") + b"0\r\n\r\n", id="a vertical tab"),
        pytest.param(with_header(b"Transfer-Encoding: chun\x00ked") + b"0\r\n\r\n", id="a zero byte"),
        pytest.param(with_header(b"X: a\rTransfer-Encoding: chunked") + b"0\r\n\r\n", id="a lone CR"),
        pytest.param(with_header(b"X: y", b" Transfer-Encoding: chunked", b"Content-Length: 0"), id="a folded line"),
        pytest.param(HEAD + CHUNKED + b"\r\n0x0\r\n\r\n", id="a chunk of size 0x0"),
        pytest.param(HEAD + CHUNKED + b"\r\n+0\r\n\r\n", id="a chunk of size +0"),
        pytest.param(HEAD + CHUNKED + b"\r\n0_0\r\n\r\n", id="a chunk of size 0_0"),
        pytest.param(HEAD + CHUNKED + b"\r\n-1\r\n\r\n", id="a chunk of size -1"),
        pytest.param(HEAD + CHUNKED + b"\r\n" + b"0" * 30 + b"1\r\n\r\n", id="a size of many digits"),
        pytest.param(HEAD + CHUNKED + b"\r\n1\r\naXX0\r\n\r\n", id="a chunk without its end"),
        pytest.param(b"POST /pods HTTP/1.0\r\nHost: n\r\n" + CHUNKED + b"\r\n0\r\n\r\n", id="HTTP/1.0 with chunks"),
        pytest.param(b"POST /pods HTTP/1.1\r\nHost: n\r\nHost: m\r\n\r\n", id="two hosts"),
        pytest.param(b"POST /pods HTTP/1.1\r\n\r\n", id="no host"),
        pytest.param(b"POST /pods HTTP/1.1 x\r\nHost: n\r\n\r\n", id="more than a version"),
        pytest.param(b"POST /pods HTTP/2.0\r\nHost: n\r\n\r\n", id="another version"),
        pytest.param(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", id="the preface of HTTP/2"),
    ],
)
async def test_nothing_is_hidden_behind_a_first_request(node_api, request_):
    for port in (node_api.port, node_api.healthz_port, node_api.read_only_port):
        said = await node_api.send(request_ + HIDDEN, port=port)
        assert said.count(b"HTTP/1.1 ") <= 1
        assert b"HTTP/1.1 2" not in said
    assert node_api.calls("ExecSync") == []


async def test_what_is_a_body_stays_one(node_api):
    """Where both sides agree the body is read as one, and the next request is the next."""
    body = with_header(b"Content-Length: %d" % len(HIDDEN)) + HIDDEN
    chunks = HEAD + CHUNKED + b"\r\n%x;ext=1\r\n%b\r\n0\r\nTrailer: x\r\n\r\n" % (len(HIDDEN), HIDDEN)
    last = b"GET /healthz HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n"
    said = await node_api.send(body + chunks + last)
    assert said.count(b"HTTP/1.1 405") == 2
    assert said.count(b"HTTP/1.1 200") == 1
    assert node_api.calls("ExecSync") == []
