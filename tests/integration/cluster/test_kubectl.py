"""kubectl through the API server to klet: logs, exec, port-forward, and what every default pod has mounted."""

import asyncio
import json
import re
from contextlib import asynccontextmanager

import pytest

from klet.api.config import ConfigMap
from klet.api.meta import ObjectMeta
from klet.testing.control_plane.programs import KUBECTL, find_program

TOKEN = "/var/run/secrets/kubernetes.io/serviceaccount"
SERVE = "echo hello; mkdir /www; echo page > /www/index.html; trap 'exit 0' TERM; httpd -f -p 8080 -h /www & wait $!"


@pytest.fixture
async def web(ready, api, node, manifest):
    """A default pod with a web server: its account's token is mounted, as everywhere."""
    if api.pods.get("web", "default") is None:
        spec = {"automountServiceAccountToken": True}
        await api.create(manifest("web", main=SERVE, spec=spec), node=node.name)
    return await api.until_pod("web", lambda pod: pod.status.phase == "Running", what="Running")


@asynccontextmanager
async def forwarding(control_plane, pod: str, port: int):
    """The local port that `kubectl port-forward` listens on."""
    process = await asyncio.create_subprocess_exec(
        str(find_program(KUBECTL)),
        f"--kubeconfig={control_plane.admin}",
        "port-forward",
        "--address=127.0.0.1",
        pod,
        f":{port}",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(20):
            said = (await process.stdout.readline()).decode()
        found = re.search(r"127\.0\.0\.1:(\d+) ->", said)
        assert found, said
        yield int(found[1])
    finally:
        process.kill()
        await process.communicate()


async def test_logs(web, api):
    assert await api.kubectl("logs", "web") == "hello\n"
    assert await api.kubectl("logs", "web", "--tail=0") == ""


async def test_exec(web, api):
    assert await api.kubectl("exec", "web", "--", "echo", "hi") == "hi\n"
    assert await api.kubectl("exec", "-i", "web", "--", "cat", stdin="typed") == "typed"
    with pytest.raises(AssertionError, match="exit code 7"):
        await api.kubectl("exec", "web", "--", "sh", "-c", "exit 7")


async def test_port_forward(web, control_plane):
    async with forwarding(control_plane, "web", 8080) as port, asyncio.timeout(20):
        for _ in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.0\r\n\r\n")
            answer = await reader.read()
            writer.close()
            assert answer.endswith(b"page\n")


async def test_the_account_of_the_pod_is_mounted(web, api, control_plane):
    shown = await api.kubectl(
        "exec", "web", "--", "sh", "-c", f"cd {TOKEN}; cat namespace; echo; cat ca.crt; cat token"
    )
    namespace, _, rest = shown.partition("\n")
    assert namespace == "default"
    assert rest.startswith(control_plane.identities.authority.read_text())
    review = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": rest.rpartition("-----\n")[2]},
    }
    answer = json.loads(await api.kubectl("create", "-o", "json", "-f", "-", stdin=json.dumps(review)))
    assert answer["status"]["user"]["username"] == "system:serviceaccount:default:default"
    extra = answer["status"]["user"]["extra"]
    assert extra["authentication.kubernetes.io/pod-uid"] == [web.metadata.uid]
    assert extra["authentication.kubernetes.io/node-name"] == [web.spec.node_name]


async def test_a_changed_config_map_reaches_the_files_of_a_running_pod(ready, api, node, manifest):
    await api.client.create(ConfigMap(metadata=ObjectMeta(name="settings"), data={"key": "one"}), "default")
    watch = 'while true; do n=$(cat /c/key); [ "$n" = "$o" ] || echo $n; o=$n; sleep 0.05; done'
    pod = manifest("reader", main=watch, spec={"volumes": [{"name": "c", "configMap": {"name": "settings"}}]})
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "c", "mountPath": "/c"}]
    await api.create(pod, node=node.name)
    await api.until_pod("reader", lambda pod: pod.status.phase == "Running", what="Running")
    process = await asyncio.create_subprocess_exec(
        str(find_program(KUBECTL)),
        f"--kubeconfig={api.plane.admin}",
        *("logs", "-f", "reader"),
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(20):
            # Running says that the process is there, not that it has read the file.
            assert await process.stdout.readline() == b"one\n"
            await api.client.patch(ConfigMap, "settings", "default", patch={"data": {"key": "two"}})
            assert await process.stdout.readline() == b"two\n"
    finally:
        process.kill()
        await process.communicate()
    await api.delete("reader")
    await api.until_gone("reader")


async def test_kubectl_describes_the_node(ready, api, node):
    reported = await api.kubectl("describe", "node", node.name)
    assert "KubeletReady" in reported
    await api.kubectl("get", "--raw", f"/api/v1/nodes/{node.name}/proxy/healthz")
