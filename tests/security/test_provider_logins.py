"""Logins that a credential provider gives for tokens of service accounts: each for the pods of its account alone."""

import json
import shlex

import pytest

from klet.api.config import ServiceAccount
from klet.api.meta import ObjectMeta
from klet.testing.fake_runtime import FakeImage, Script, registry_of

IMAGE = "registry.example.com/tenant/private:1"
PASSWORD = "right-pass-Zq7rT2"
SCRIPT = Script(registry=registry_of(FakeImage(IMAGE, login=("tenant", PASSWORD))))
V1 = "credentialprovider.kubelet.k8s.io/v1"
TENANT = "klet.test/tenant"


class Trader:
    """A plugin that gives the login to the tenant `blue`, and a wrong one to everybody else who may ask."""

    def __init__(self, directory):
        (directory / "programs").mkdir(parents=True)
        self._asked = directory / "asked"
        program = directory / "programs" / "trader"
        program.write_text(
            "#!/bin/sh\n"
            "request=$(cat)\n"
            f"printf '%s\\n' \"$request\" >>{shlex.quote(str(self._asked))}\n"
            "password=wrong-pass\n"
            f'case $request in *\'"{TENANT}":"blue"\'*) password={PASSWORD} ;; esac\n'
            'echo "traded $request" >&2\n'
            f'printf \'{{"kind":"CredentialProviderResponse","apiVersion":"{V1}","cacheKeyType":"Global",'
            '"auth":{"registry.example.com":{"username":"tenant","password":"%s"}}}\' "$password"\n'
        )
        program.chmod(0o755)
        attributes = {
            "serviceAccountTokenAudience": "registry.example.com",
            "requireServiceAccount": True,
            "cacheType": "ServiceAccount",
            "requiredServiceAccountAnnotationKeys": [TENANT],
        }
        provider = {
            "name": "trader",
            "matchImages": ["registry.example.com"],
            "defaultCacheDuration": "1h",
            "apiVersion": V1,
            "tokenAttributes": attributes,
        }
        head = {"kind": "CredentialProviderConfig", "apiVersion": "kubelet.config.k8s.io/v1"}
        (directory / "config.yaml").write_text(json.dumps({**head, "providers": [provider]}))
        self.flags = (
            f"--image-credential-provider-config={directory / 'config.yaml'}",
            f"--image-credential-provider-bin-dir={directory / 'programs'}",
        )

    def asked(self):
        """What it was asked, in order."""
        return [json.loads(line) for line in self._asked.read_text().splitlines()] if self._asked.exists() else []


@pytest.fixture
def trader(tmp_path_factory):
    return Trader(tmp_path_factory.mktemp("trader") / "files")


def spec(account, policy="Always"):
    container = {"name": "main", "image": IMAGE, "imagePullPolicy": policy}
    return {"containers": [container], "serviceAccountName": account}


async def make_accounts(client):
    for name, tenant in (("blue", "blue"), ("red", "red"), ("plain", None)):
        annotations = {} if tenant is None else {TENANT: tenant, "klet.test/other": "unasked"}
        await client.create(ServiceAccount(metadata=ObjectMeta(name=name, annotations=annotations)), "default")


async def test_a_login_of_one_account_opens_no_image_to_another(attack, trader):
    target = await attack.on(script=SCRIPT, cluster=True)
    async with attack.run(target, *trader.flags, "--v=10"):
        await make_accounts(target.cluster.client)
        await target.cluster.bind("owner", spec("blue"))
        await target.reported("Started", about="owner")
        [request] = trader.asked()
        assert request["image"] == "registry.example.com/tenant/private"
        assert request["serviceAccountAnnotations"] == {TENANT: "blue"}

        # Another account gets what it is given itself; one without the annotation is not asked for.
        for name in ("red", "plain"):
            await target.cluster.bind(f"{name}-always", spec(name))
            assert "pull access denied" in await target.reported("Failed", about=f"{name}-always")
        assert [each["serviceAccountAnnotations"][TENANT] for each in trader.asked()] == ["blue", "red"]

        # The image is there now: for the pods of the account that it was pulled for, without another pull.
        await target.cluster.bind("friend", spec("blue", "IfNotPresent"))
        assert "can be accessed by the pod" in await target.reported("Pulled", about="friend")
        for name in ("red", "plain"):
            await target.cluster.bind(f"{name}-present", spec(name, "IfNotPresent"))
            assert "pull access denied" in await target.reported("Failed", about=f"{name}-present")
        assert len(target.created()) == 2
    secrets = (PASSWORD.encode(), *(each["serviceAccountToken"].encode() for each in trader.asked()))
    files = [path for path in target.node.root.parent.rglob("*") if path.is_file() and not path.is_symlink()]
    assert target.node.log in files
    assert [str(path) for path in files if any(secret in path.read_bytes() for secret in secrets)] == []
