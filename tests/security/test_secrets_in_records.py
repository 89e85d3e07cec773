"""Secrets in what a node writes down: a run with seeded secrets at the highest verbosity, then a search for them.

Looked through are the log, the journal, Events, metrics, explanations, checkpoints and all other files of the agent,
what the kubelet API shows, and the command lines and environments of its processes.
"""

import asyncio
import base64
import json
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from klet.api.config import Secret
from klet.api.meta import ObjectMeta
from klet.embedded.identities import ApiUser
from klet.images.docker_config import RegistryLogin
from klet.images.sources import credential_hash
from klet.testing.fake_runtime import ExecResult, FakeImage, Script, registry_of
from klet.testing.leftovers import list_files

PRIVATE = "registry.example.com/team/private:1"
SEEDS = {
    name: f"seed-{name}-Zq7rT2"
    for name in (
        "env",
        "env-from",
        "volume",
        "password",
        "bad-login",
        "odd-login",
        "client-token",
        "websocket-token",
        "node-token",
        "probe-header",
        "literal",
        "url-password",
        "url-query",
        "url-header",
    )
}
IN_PODS = {"literal", "probe-header"}
"""What is written in the pod itself: who may read pods may read it."""


def login(user, password):
    auth = base64.b64encode(f"{user}:{password}".encode()).decode()
    return json.dumps({"auths": {"registry.example.com": {"username": user, "password": password, "auth": auth}}})


def docker_config(name, text):
    data = {".dockerconfigjson": text.encode()}
    return Secret(metadata=ObjectMeta(name=name), type="kubernetes.io/dockerconfigjson", data=data)


async def make_secrets(client):
    texts = {"env": SEEDS["env"], "file": SEEDS["volume"]}
    data = {key: value.encode() for key, value in texts.items()}
    await client.create(Secret(metadata=ObjectMeta(name="data"), data=data), "default")
    whole = {"FROM": SEEDS["env-from"].encode(), "not a name!": SEEDS["env-from"].encode()}
    await client.create(Secret(metadata=ObjectMeta(name="whole"), data=whole), "default")
    await client.create(docker_config("good", login("user", SEEDS["password"])), "default")
    await client.create(docker_config("bad", login("user", SEEDS["bad-login"])), "default")
    odd = json.dumps({"auths": {"registry.example.com": {"auth": f"!!{SEEDS['odd-login']}"}}})
    await client.create(docker_config("odd", odd), "default")
    await client.create(docker_config("broken", f'{{"auths": {{"x": "{SEEDS["odd-login"]}'), "default")


def pod_spec(image=PRIVATE, secret="good", **more):
    probe = {"httpHeaders": [{"name": "Authorization", "value": SEEDS["probe-header"]}], "port": 1, "path": "/"}
    container = {
        "name": "main",
        "image": image,
        "imagePullPolicy": "Always",
        "env": [
            {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "data", "key": "env"}}},
            {"name": "LITERAL", "value": SEEDS["literal"]},
        ],
        "envFrom": [{"secretRef": {"name": "whole"}}],
        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
        "readinessProbe": {"httpGet": probe, "periodSeconds": 1},
        "livenessProbe": {"exec": {"command": ["check"]}, "periodSeconds": 1, "failureThreshold": 1},
        "lifecycle": {"preStop": {"httpGet": probe}},
    }
    volumes = [{"name": "v", "secret": {"secretName": "data"}}]
    return {"containers": [container], "volumes": volumes, "imagePullSecrets": [{"name": secret}], **more}


@pytest.fixture
async def target(attack, monkeypatch):
    script = Script(
        registry=registry_of(FakeImage(PRIVATE, login=("user", SEEDS["password"]))),
        execs=lambda _config, _command: ExecResult(exit_code=1, stderr=b"no"),
    )
    tokens = {
        SEEDS["client-token"]: ApiUser("reader"),
        SEEDS["node-token"]: ApiUser("node", groups=("system:masters",)),
    }
    target = await attack.on(script=script, cluster=True, tokens=tokens)
    kubeconfig = target.cluster.kubeconfig(attack.directory, token=SEEDS["node-token"])
    target.cluster.kubeconfig = lambda _directory: kubeconfig
    authentication = target.node.settings["authentication"] | {"webhook": {"enabled": True}}
    url = f"http://user:{SEEDS['url-password']}@127.0.0.1:1/pods?token={SEEDS['url-query']}"
    settings = {
        "authentication": authentication,
        "authorization": {"mode": "Webhook"},
        "staticPodURL": url,
        "staticPodURLHeader": {"Authorization": [SEEDS["url-header"]]},
        "httpCheckFrequency": "1s",
        "logging": {"verbosity": 10},
    }
    async with attack.run(target, "--v=10", **settings):
        yield target


async def use_secrets(target):
    """Everything that brings a secret to the node, with success and without."""
    client = target.cluster.client
    await make_secrets(client)
    await target.cluster.bind("good", pod_spec())
    for name in ("bad", "odd", "broken", "gone"):
        await target.cluster.bind(name, pod_spec(secret=name) | {"restartPolicy": "Never"})
    await target.cluster.bind("missing", pod_spec(image="registry.example.com/team/absent:1"))
    await target.reported("Started", about="good")
    for name in ("bad", "odd", "broken", "gone", "missing"):
        await target.reported("Failed", about=name)
    await target.reported("Unhealthy", about="good")
    for token in (SEEDS["client-token"], SEEDS["client-token"] + "x"):
        for path in ("/pods", "/run/default/good/main?cmd=id", "/nothing", f"/pods?token={SEEDS['client-token']}"):
            await target.ask(path, who=None, headers={"Authorization": f"Bearer {token}"})
    encoded = base64.urlsafe_b64encode(SEEDS["websocket-token"].encode()).decode().rstrip("=")
    head = (
        "GET /exec/default/good/main?command=id&output=1 HTTP/1.1\r\nHost: n\r\nConnection: Upgrade\r\n"
        "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
        f"Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.{encoded}, v4.channel.k8s.io\r\n\r\n"
    )
    await target.send(head.encode(), who=None)
    await target.send(f"GET / HTTP/1.1\r\nAuthorization: Bearer {SEEDS['client-token']}\r\nbad\r\n\r\n".encode())


def forms_of(seed):
    """The secret as it is and as it is often written."""
    text = SEEDS[seed].encode()
    pair = base64.b64encode(b"user:" + text)
    return (text, base64.b64encode(text).rstrip(b"="), pair.rstrip(b"="), text.hex().encode())


HASHES = tuple(credential_hash(RegistryLogin("user", SEEDS[name])).encode() for name in ("password", "bad-login"))
"""Upstream's hashes of the logins: whoever has one can guess at the password."""


def found_in(data, *, allowed=frozenset()):
    return {name for name in SEEDS if name not in allowed and any(form in data for form in forms_of(name))}


def files_of(*roots):
    """All files of the agent but those in volumes, which hold what their pods asked for; by their paths."""
    found = {}
    for path in (path for root in roots for path in list_files(root)):
        if path.is_file() and not path.is_symlink() and "volumes" not in path.parts:
            with suppress(FileNotFoundError):  # one that has got its name meanwhile is there by that
                found[str(path)] = path.read_bytes()
    return found


def processes_of(pid):
    """What anybody on the machine, or its owner, sees of the agent and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    for each in (str(pid), *children):
        for name in ("cmdline", "environ"):
            yield f"{each}/{name}", (Path("/proc") / each / name).read_bytes()


async def explain(target, *arguments):
    command = (sys.executable, "-P", "-m", "klet", *arguments, f"--state-dir={target.node.root}")
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    output, _ = await process.communicate()
    assert process.returncode == 0, output
    return output


async def test_nothing_that_is_written_down_holds_a_secret(target):
    await use_secrets(target)
    shown = {
        "log": target.agent.log.encode(),
        "journal": (await target.agent.text("/klet/v1/journal")).encode(),
        "events": json.dumps(target.cluster.objects("events")).encode(),
        "events v1": json.dumps(target.cluster.objects("events.events.k8s.io")).encode(),
        "node": json.dumps(target.cluster.objects("nodes")).encode(),
        "leases": json.dumps(target.cluster.objects("leases.coordination.k8s.io")).encode(),
        "configz": (await target.agent.text("/configz")).encode(),
        "metrics": (await target.agent.text("/metrics")).encode(),
        "explain node": await explain(target, "explain", "node"),
        **{f"explain {name}": await explain(target, "explain", "--all", name) for name in ("good", "bad", "odd")},
        **dict(processes_of(target.agent.process.pid)),
        **files_of(target.node.root, target.directory / "pki"),
    }
    statuses = [pod["status"] for pod in target.cluster.objects("pods")]
    shown["statuses"] = json.dumps(statuses).encode()
    assert {where: found for where, data in shown.items() if (found := found_in(data))} == {}
    # The records of pulled images are for root alone; only they have hashes of logins, and of those that were accepted.
    hashed = {where: sum(each in data for each in HASHES) for where, data in shown.items()}
    records = {where for where in shown if where.startswith(str(target.node.root / "image_manager"))}
    assert {where for where, count in hashed.items() if count} == records
    assert [hashed[where] for where in records] == [1]
    # The search finds what is there, and the run used all of it.
    assert "Credentials refused" in target.agent.log
    assert found_in(b"".join(call.request.SerializeToString() for call in target.runtime.calls)) >= {"env", "password"}


async def test_pods_show_what_was_written_in_them_and_no_more(target):
    await use_secrets(target)
    for path in ("/pods", "/runningpods/"):
        text = b""
        async with asyncio.timeout(60):
            # Its liveness probe fails, so the container may just have ended, and be started again after a back-off.
            while b"main" not in text:
                text = (await target.agent.text(path)).encode()
                await asyncio.sleep(0.05)
        assert found_in(text, allowed=IN_PODS) == set()
