"""Names in node log queries and below /logs/: paths out of the log directory, options and commands in service names.

Hostile files in the log directory itself: `tests/component/server/test_node_logs.py`.
"""

import pytest

pytestmark = pytest.mark.asyncio(loop_scope="session")

FILES = (
    "/logs/../../etc/passwd",
    "/logs/..%2f..%2fetc%2fpasswd",
    "/logs/%2e%2e/%2e%2e/etc/passwd",
    "/logs//etc/passwd",
    "/logs/%00/etc/passwd",
    "/logs/pods/default_web_1/main/0.log",
)
QUERIES = (
    "--help",
    "-o",
    "$(id)",
    "`id`",
    "kubelet;id",
    "kubelet%0aid",
    "../../etc/passwd",
    "/../../etc/passwd",
    "%00",
)


async def test_no_path_leads_out_of_the_log_directory(node_api):
    for path in FILES:
        status, text = await node_api.ask(path)
        assert status == 404
        assert "root:" not in text


async def test_without_the_gate_no_service_is_asked_for(node_api):
    """A query is then a question for the directory, whatever it says."""
    for query in QUERIES:
        status, text = await node_api.ask(f"/logs/?query={query}&boot=-1&tailLines=x")
        assert (status, "uid=" in text, "root:" in text) == (200, False, False)


@pytest.mark.asyncio(loop_scope="function")
async def test_no_name_of_a_service_is_an_option_or_a_command(attack, monkeypatch, tmp_path):
    programs, asked = tmp_path / "bin", tmp_path / "asked"
    programs.mkdir()
    (programs / "journalctl").write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >>{asked}\necho kubelet.service\n')
    (programs / "journalctl").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    async with attack(featureGates={"NodeLogQuery": True}, enableSystemLogQuery=True) as target:
        for query in QUERIES:
            for options in ("", "&boot=-1", "&sinceTime=x%0ay", "&pattern=%28%61%2b%29%2b", "&tailLines=-1"):
                status, text = await target.ask(f"/logs/?query={query}{options}")
                assert status in {200, 400, 406}, query
                assert "uid=" not in text
                assert "root:" not in text
        assert (await target.ask("/logs/?query=kubelet&pattern=--help"))[0] == 200
        arguments = set(asked.read_text().splitlines())
    assert "--help" not in arguments
    assert {"--unit=kubelet", "--grep=--help"} <= arguments


async def test_unauthenticated_clients_learn_as_little(node_api):
    for path in ("/logs/", "/logs/syslog", *FILES):
        assert (await node_api.ask(path, who=None))[0] in {401, 404}
        for port in (node_api.healthz_port, node_api.read_only_port):
            assert (await node_api.ask(path, who=None, port=port))[0] in {404, 405}
