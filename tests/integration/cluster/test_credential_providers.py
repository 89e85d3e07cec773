"""Pods of a real API server pull with a credential provider that trades tokens of their service accounts for logins."""

import base64
import json
import shutil
from pathlib import Path

import pytest
import pytest_asyncio

from klet.api.event import Event
from klet.host.files import read_bytes
from klet.host.images import build_busybox_image, read_applets
from klet.testing.control_plane.programs import chosen_minor
from klet.testing.leftovers import list_files
from klet.testing.registry.images import push_image
from klet.testing.registry.process import run_registry_process
from klet.testing.registry.tokens import PASSWORD, USER, basic

pytestmark = [pytest.mark.root, pytest.mark.containerd]
V1 = "credentialprovider.kubelet.k8s.io/v1"
ACCOUNTS_SINCE = 34
AUDIENCE = "registry.klet.test"
TENANT = "klet.test/tenant"
AUDIENCE_ROLE = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "registry-audience"},
    "rules": [{"apiGroups": [""], "resources": [AUDIENCE], "verbs": ["request-serviceaccounts-token-audience"]}],
}
# A plugin that keeps what it was asked, and gives the login to whom it was asked for.
PLUGIN = """\
#!/bin/sh
request=$(cat)
printf '%s\\n' "$request" >>{directory}/requests
cat {directory}/answer
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def registry(registry_program, tmp_path_factory):
    """A registry of one login, with busybox in it."""
    directory = tmp_path_factory.mktemp("registry")
    if (busybox := shutil.which("busybox")) is None:
        pytest.skip("no busybox: apt-get install busybox-static")
    async with run_registry_process(directory, program=registry_program) as process:
        binary, applets = read_bytes(Path(busybox)), await read_applets(Path(busybox))
        archive = build_busybox_image(binary=binary, applets=applets, name="team/app:1")
        await push_image(process.registry, "team/app:1", archive)
        yield process.registry


@pytest.fixture(scope="module")
def plugin(registry, tmp_path_factory):
    """The directory of the plugin."""
    directory = tmp_path_factory.mktemp("provider")
    (directory / "bin").mkdir()
    program = directory / "bin" / "trader"
    program.write_text(PLUGIN.format(directory=directory))
    program.chmod(0o755)
    login = {registry.address: {"username": USER, "password": PASSWORD}}
    answer = {"kind": "CredentialProviderResponse", "apiVersion": V1, "cacheKeyType": "Registry", "auth": login}
    (directory / "answer").write_text(json.dumps(answer))
    provider = {
        "name": "trader",
        "matchImages": [registry.address],
        "defaultCacheDuration": "1h",
        "apiVersion": V1,
        "tokenAttributes": {
            "serviceAccountTokenAudience": AUDIENCE,
            "requireServiceAccount": True,
            "cacheType": "ServiceAccount",
            "requiredServiceAccountAnnotationKeys": [TENANT],
        },
    }
    head = {"kind": "CredentialProviderConfig", "apiVersion": "kubelet.config.k8s.io/v1"}
    (directory / "config.yaml").write_text(json.dumps({**head, "providers": [provider]}))
    return directory


@pytest.fixture(scope="module")
def agent_flags(plugin):
    return (
        "--klet-leave-kernel-tunables",
        f"--image-credential-provider-config={plugin / 'config.yaml'}",
        f"--image-credential-provider-bin-dir={plugin / 'bin'}",
    )


def requests_of(plugin):
    file = plugin / "requests"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def claims_of(token):
    part = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def private(manifest, name, image, account):
    pod = manifest(name, main="exec sleep 1000", spec={"serviceAccountName": account})
    pod["spec"]["containers"][0] |= {"image": image, "imagePullPolicy": "Always"}
    return pod


@pytest.mark.skipif(
    chosen_minor() < ACCOUNTS_SINCE, reason="an API server of that release lets nodes read no accounts: run a newer one"
)
async def test_the_token_of_an_account_is_traded_for_a_login(ready, api, agent, node, manifest, registry, plugin):
    await api.kubectl("apply", "-f", "-", stdin=json.dumps(AUDIENCE_ROLE))
    await api.kubectl(
        "create", "clusterrolebinding", "registry-audience", "--clusterrole=registry-audience", "--group=system:nodes"
    )
    for account in ("tenant", "plain"):
        await api.kubectl("create", "serviceaccount", account)
    await api.kubectl("annotate", "serviceaccount", "tenant", f"{TENANT}=blue", "klet.test/other=unasked")
    image = f"{registry.address}/team/app:1"

    pods = []
    for name in ("first", "second"):
        await api.create(private(manifest, name, image, "tenant"), node=node.name)
        pods.append(await api.until_pod(name, lambda pod: pod.status.phase == "Running", what="Running"))
    # The second pod is of the same account: the answer is kept for it, although its token would be another.
    [request] = requests_of(plugin)
    assert request["image"] == f"{registry.address}/team/app"
    assert request["serviceAccountAnnotations"] == {TENANT: "blue"}
    claims = claims_of(request["serviceAccountToken"])
    assert claims["sub"] == "system:serviceaccount:default:tenant"
    assert claims["aud"] == [AUDIENCE]
    assert claims["kubernetes.io"]["pod"] == {"name": "first", "uid": pods[0].metadata.uid}

    # An account without the annotation is not asked for; nothing else lets its pod in.
    await api.create(private(manifest, "stranger", image, "plain"), node=node.name)
    waiting = await api.until_pod("stranger", is_refused, what="ErrImagePull")
    assert waiting.status.phase == "Pending"
    assert len(requests_of(plugin)) == 1

    events = await api.client.list(Event, "default")
    written = [agent.log.encode(), repr(events).encode(), *map(read, list_files(node.root))]
    secrets = (PASSWORD, basic(USER, PASSWORD).partition(" ")[2], request["serviceAccountToken"])
    assert [secret for secret in secrets if any(secret.encode() in text for text in written)] == []
    for name in ("first", "second", "stranger"):
        await api.delete(name)
        await api.until_gone(name)


def is_refused(pod):
    states = [status.state.waiting for status in pod.status.container_statuses if status.state.waiting]
    return any(waiting.reason in ("ErrImagePull", "ImagePullBackOff") for waiting in states)


def read(path):
    """What is in a file; nothing in what is no file, or gone by now."""
    try:
        return path.read_bytes() if path.is_file() and not path.is_symlink() else b""
    except FileNotFoundError:
        return b""
