"""Open by default: a kubelet whose owner has said nothing about access lets nobody in."""

import asyncio

import pytest

from klet.embedded.identities import ApiUser

PATHS = (
    "/pods",
    "/runningpods/",
    "/configz",
    "/metrics",
    "/stats/summary",
    "/logs/",
    "/containerLogs/default/web/main",
    "/exec/default/web/main?command=id&output=1",
    "/run/default/web/main?cmd=id",
    "/checkpoint/default/web/main",
    "/healthz",
)


async def test_flags_alone_do_not_open_a_node_to_the_network(attack):
    """Upstream's defaults of flags let everybody run commands in every pod."""
    target = await attack.on(cluster=True)
    kubeconfig = f"--kubeconfig={target.cluster.kubeconfig(attack.directory)}"
    endpoint = f"--container-runtime-endpoint={target.node.settings['containerRuntimeEndpoint']}"
    # One that did start would touch nothing of the machine's own.
    harmless = (
        "--fail-swap-on=false",
        "--fail-cgroupv1=false",
        "--cgroups-per-qos=false",
        "--enforce-node-allocatable=none",
        "--healthz-port=0",
        f"--port={target.port}",
        f"--cert-dir={attack.directory / 'pki'}",
    )
    for flags in ((), (kubeconfig,), (kubeconfig, "--anonymous-auth=false", "--authentication-token-webhook=true")):
        code, said = await target.node.run_to_end(endpoint, *harmless, *flags)
        assert code == 1
        assert "could run commands in every pod" in said
    assert target.runtime.calls == ()


async def test_a_configuration_without_access_settings_authorizes_nobody(attack):
    target = await attack.on(cluster=True)
    for setting in ("authentication", "authorization"):
        del target.node.settings[setting]
    async with attack.run(target):
        for path in PATHS:
            for method in ("GET", "POST"):
                status, text = await target.ask(path, who=None, method=method)
                assert status in {401, 404, 405}, path
                assert "apiVersion" not in text
            status, _ = await target.ask(path, who=None, headers={"Authorization": "Bearer made-up"})
            assert status in {401, 404, 405}
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", target.read_only_port)
    assert target.calls("Exec") + target.calls("ExecSync") == []


async def test_a_user_without_rights_is_known_and_refused(attack):
    class Nobody:
        def allows(self, _asked):
            return False

    target = await attack.on(cluster=True, tokens={"pod-token": ApiUser("system:serviceaccount:a:b")}, rights=Nobody())
    for setting in ("authentication", "authorization"):
        del target.node.settings[setting]
    async with attack.run(target):
        for path in PATHS:
            status, _ = await target.ask(path, who=None, headers={"Authorization": "Bearer pod-token"})
            assert status in {403, 404, 405}, path
