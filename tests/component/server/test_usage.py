"""The usage of node and pods, scraped over the network."""

import pytest

TEXTS = {
    "/metrics/cadvisor": "container_scrape_error 0\nmachine_scrape_error 0\n",
    "/metrics/resource": "resource_scrape_error 0\n",
}
TYPE = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"


@pytest.mark.parametrize("path", TEXTS)
@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [("gzip", "gzip"), ("deflate, gzip;q=0.5", "gzip"), ("identity", None), ("gzip;q=0", None)],
)
async def test_a_scrape_is_compressed_if_the_client_accepts_it(kubelet, path, accepted, encoding):
    async with kubelet.session() as session, session.get(path, headers={"Accept-Encoding": accepted}) as answer:
        assert answer.status == 200
        assert answer.headers["Content-Type"] == TYPE
        assert answer.headers["Process-Start-Time-Unix"] == "1700000000"
        assert answer.headers.get("Content-Encoding") == encoding
        assert await answer.text() == TEXTS[path]


@pytest.mark.parametrize("path", TEXTS)
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_every_method_is_a_scrape(kubelet, path, method):
    assert await kubelet.get(path, method=method) == (200, TEXTS[path])


@pytest.mark.parametrize("path", TEXTS)
async def test_head_has_the_headers_alone(kubelet, path):
    async with kubelet.session() as session:
        async with session.head(path) as answer:
            assert (answer.status, answer.headers["Content-Type"]) == (200, TYPE)
            assert await answer.read() == b""
        async with session.get(path) as answer:
            assert await answer.text() == TEXTS[path]
