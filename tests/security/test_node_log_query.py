"""Names in node log queries and below /logs/: paths out of the log directory, options and commands in service names.

The log directory of the node is not served at all so far, so each of these is a path that does not exist.
"""

import pytest

pytestmark = pytest.mark.asyncio(loop_scope="session")

FILES = (
    "/logs/",
    "/logs/syslog",
    "/logs/../../etc/passwd",
    "/logs/..%2f..%2fetc%2fpasswd",
    "/logs/%2e%2e/%2e%2e/etc/passwd",
    "/logs//etc/passwd",
    "/logs/%00/etc/passwd",
    "/logs/pods/default_web_1/main/0.log",
)
QUERIES = (
    "kubelet",
    "--help",
    "-o",
    "$(id)",
    "`id`",
    "kubelet;id",
    "kubelet%0aid",
    "../../etc/passwd",
    "%00",
)


async def test_files_of_the_node_are_not_served(node_api):
    for path in FILES:
        status, text = await node_api.ask(path)
        assert status == 404
        assert "root:" not in text


async def test_services_are_not_asked_for_their_logs(node_api):
    for query in QUERIES:
        for options in ("", "&boot=-1", "&sinceTime=x%0ay", "&pattern=%28%61%2b%29%2b", "&tailLines=-1"):
            status, text = await node_api.ask(f"/logs/?query={query}{options}")
            assert (status, "uid=" in text) == (404, False)


async def test_unauthenticated_clients_learn_as_little(node_api):
    for path in FILES:
        assert (await node_api.ask(path, who=None))[0] in {401, 404}
        for port in (node_api.healthz_port, node_api.read_only_port):
            assert (await node_api.ask(path, who=None, port=port))[0] in {404, 405}
