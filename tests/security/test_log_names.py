"""Names in the paths of logs: each names a namespace, pod or container, and none becomes a path of the host."""

import pytest

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize(
    "path",
    [
        "/containerLogs/default/..%2f..%2fweb/main",
        "/containerLogs/../web/main",
        "/containerLogs/default/web/..%2fmain",
        "/containerLogs/default/web/main%00",
        "/containerLogs/default/web/main%0a",
        "/containerLogs/default/%2e%2e/main",
        "/containerLogs/default/web/..",
        "/containerLogs/default/web/main%2f0.log",
        "/containerLogs/default/web/*",
        "/containerLogs/*/web/main",
    ],
)
async def test_only_a_pod_of_the_node_has_logs(node_api, path):
    node_api.runtime.write_log(node_api.container("main").id, "said by main")
    assert "said by main" in (await node_api.ask("/containerLogs/default/web/main"))[1]
    status, text = await node_api.ask(path)
    assert status in {400, 404}
    assert "said by main" not in text


@pytest.mark.parametrize("query", ["tailLines=-1", "limitBytes=0", "sinceSeconds=-1", "tailLines=99999999999999999999"])
async def test_numbers_that_make_no_sense_are_refused(node_api, query):
    status, _ = await node_api.ask(f"/containerLogs/default/web/main?{query}")
    assert status in {400, 422}
