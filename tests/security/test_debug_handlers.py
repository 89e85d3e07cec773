"""Debug handlers on a port without a check (CVE-2019-11248): profiles, flags and variables of the process."""

import pytest

pytestmark = pytest.mark.asyncio(loop_scope="session")

PATHS = (
    "/debug/pprof/",
    "/debug/pprof/heap",
    "/debug/pprof/cmdline",
    "/debug/pprof/profile?seconds=1",
    "/debug/flags/v",
    "/debug/vars",
    "/configz",
    "/flagz",
    "/logs/",
    "/runningpods/",
    "/spec/",
    "/klet/v1/journal",
    "/healthz/../configz",
    "/healthz/%2e%2e/configz",
    "//configz",
)


async def test_ports_without_a_check_have_none(node_api):
    for port in (node_api.healthz_port, node_api.read_only_port):
        assert await node_api.ask("/healthz", port=port) == (200, "ok")
        answers = {path: await node_api.ask(path, port=port) for path in PATHS}
        assert {path: status for path, (status, _) in answers.items() if status not in {404, 405}} == {}
        assert not any("apiVersion" in text or "klet" in text for _, text in answers.values())


@pytest.mark.parametrize("path", ["/metrics", "/metrics/cadvisor", "/metrics/resource", "/stats/summary"])
async def test_metrics_are_on_the_read_only_port_and_not_on_the_health_port(node_api, path):
    """As upstream has it."""
    assert (await node_api.ask(path, port=node_api.healthz_port))[0] == 404
    assert (await node_api.ask(path, port=node_api.read_only_port))[0] == 200


async def test_pods_are_not_on_the_health_port(node_api):
    assert (await node_api.ask("/pods", port=node_api.healthz_port))[0] == 404


async def test_who_is_not_known_gets_none_of_them(node_api):
    for path in PATHS[:6]:
        assert (await node_api.ask(path, who=None))[0] in {401, 404}
        headers = {"Authorization": "Bearer stranger-token"}
        assert (await node_api.ask(path, who=None, headers=headers))[0] in {403, 404}


async def test_profiles_and_the_verbosity_need_the_right_to_the_whole_node(node_api):
    headers = {"Authorization": "Bearer reader-token"}
    assert (await node_api.ask("/debug/pprof/cmdline", who=None, headers=headers))[0] == 200
    assert (await node_api.ask("/debug/flags/v", who=None, method="PUT", headers=headers))[0] == 403


async def test_a_profile_of_the_agent_is_compressed_as_pprof_wants_it(node_api):
    status, text = await node_api.ask("/debug/pprof/profile?seconds=1")
    assert (status, text[0]) == (200, "\x1f")
