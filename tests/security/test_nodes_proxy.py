"""The right to `get nodes/proxy` used to act in pods: a WebSocket begins with GET, and so does an exec through it."""

import pytest

pytestmark = pytest.mark.asyncio(loop_scope="session")

READER = {"Authorization": "Bearer reader-token"}
WEBSOCKET = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Protocol": "v4.channel.k8s.io",
}


async def test_a_reader_reads(node_api):
    status, text = await node_api.ask("/pods", who=None, headers=READER)
    assert status == 200
    assert '"web"' in text


@pytest.mark.parametrize(
    "path",
    [
        "/exec/default/web/main?command=id&output=1",
        "/exec/default/web/some-uid/main?command=id&output=1",
        "/attach/default/web/main?output=1",
        "/portForward/default/web?port=80",
        "//exec/default/web/main?command=id&output=1",
        "/pods/../exec/default/web/main?command=id&output=1",
        "/%65xec/default/web/main?command=id&output=1",
        "/exec%2Fdefault/web/main?command=id&output=1",
    ],
)
async def test_a_reader_does_not_act(node_api, path):
    status, _ = await node_api.ask(path, who=None, headers=READER | WEBSOCKET)
    assert status in {301, 403, 404}
    assert node_api.streamer.heads == []
    assert node_api.calls("Exec") + node_api.calls("Attach") + node_api.calls("PortForward") == []


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_reader_does_not_run_commands(node_api, method):
    status, _ = await node_api.ask("/run/default/web/main?cmd=id", who=None, method=method, headers=READER)
    assert status in {403, 405}
    assert node_api.calls("ExecSync") == []


async def test_a_method_of_the_readers_choice_changes_nothing(node_api):
    headers = READER | {"X-HTTP-Method-Override": "GET", "X-Original-URL": "/pods", "X-Rewrite-URL": "/pods"}
    assert (await node_api.ask("/run/default/web/main?cmd=id", who=None, method="POST", headers=headers))[0] == 403


async def test_another_user_cannot_be_claimed(node_api):
    headers = READER | {
        "Impersonate-User": "admin",
        "X-Remote-User": "admin",
        "X-Remote-Group": "system:masters",
        "X-Forwarded-User": "admin",
    }
    assert (await node_api.ask("/run/default/web/main?cmd=id", who=None, method="POST", headers=headers))[0] == 403
    assert {asked.user for asked in node_api.rights.asked if asked.user != "reader"} <= {"admin", "stranger"}
    assert node_api.calls("ExecSync") == []
