"""The agent asks a credential provider plugin, and pulls with what it says."""

import json
from pathlib import Path

import pytest

from klet.testing.registry.tokens import PASSWORD, USER, basic

pytestmark = [pytest.mark.root, pytest.mark.containerd]
V1 = "credentialprovider.kubelet.k8s.io/v1"
WORDS = "no role for this node"


class Plugin:
    """A plugin that gives the login of one registry, or fails."""

    def __init__(self, directory, registry):
        self.programs = directory / "plugins"
        self.programs.mkdir()
        self.config = directory / "providers.yaml"
        self._directory = directory
        provider = {
            "name": "tester",
            "matchImages": [f"{registry.address}/team"],
            "defaultCacheDuration": "1h",
            "apiVersion": V1,
            "args": ["get"],
            "env": [{"name": "MODE", "value": "test"}],
        }
        head = {"kind": "CredentialProviderConfig", "apiVersion": "kubelet.config.k8s.io/v1"}
        self.config.write_text(json.dumps({**head, "providers": [provider]}))
        self.flags = (
            f"--image-credential-provider-config={self.config}",
            f"--image-credential-provider-bin-dir={self.programs}",
        )
        login = {registry.address: {"username": USER, "password": PASSWORD}}
        self._answer = {
            "kind": "CredentialProviderResponse",
            "apiVersion": V1,
            "cacheKeyType": "Registry",
            "auth": login,
        }

    def succeed(self):
        self._write(f"cat >>{self._directory}/requests\ncat <<'EOF'\n{json.dumps(self._answer)}\nEOF")

    def fail(self):
        self._write(f"echo {WORDS} >&2\nexit 3")

    def requests(self):
        return [json.loads(line) for line in (self._directory / "requests").read_text().splitlines()]

    def _write(self, script):
        new = self._directory / "new"
        new.write_text(f"#!/bin/sh\n{script}\n")
        new.chmod(0o755)
        new.rename(self.programs / "tester")


@pytest.fixture
def plugin(tmp_path, registry):
    return Plugin(tmp_path, registry)


def manifest(name, image):
    container = {"name": "main", "image": image, "imagePullPolicy": "Always", "command": ["sleep", "1000"]}
    spec = {"hostNetwork": True, "terminationGracePeriodSeconds": 0, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def files_with(directory: Path, secrets: tuple[bytes, ...]) -> list[str]:
    """The files below a directory that hold a secret."""
    files = [path for path in directory.rglob("*") if path.is_file() and not path.is_symlink()]
    assert files
    return [str(path) for path in files if any(secret in path.read_bytes() for secret in secrets)]


async def test_a_plugin_lets_pods_in_and_nothing_that_is_written_holds_its_login(node, private_image, registry, plugin):
    secrets = (PASSWORD.encode(), basic(USER, PASSWORD).partition(" ")[2].encode())
    plugin.fail()
    node.write("stranger", manifest("stranger", private_image))
    async with node.run(*plugin.flags, logging={"verbosity": 10}) as agent:
        [failure, refused] = await agent.recorded("stranger", "CredentialProviderFailed", "Failed")
        assert failure["message"].startswith("credential provider tester gave no logins: ")
        assert failure["message"].endswith("exit status 3")
        assert private_image in refused["message"]
        assert WORDS in agent.log
        node.remove("stranger")

        plugin.succeed()
        for name in ("guest", "second"):
            node.write(name, manifest(name, private_image))
            await agent.recorded(name, "Pulling", "Pulled", "Started")
        # The answer to the first is kept for the registry.
        repository = f"{registry.address}/team/app"
        assert plugin.requests() == [{"kind": "CredentialProviderRequest", "apiVersion": V1, "image": repository}]

        metrics = await agent.text("/metrics")
        assert 'kubelet_credential_provider_config_info{hash="sha256:' in metrics
        counted = dict(line.rpartition(" ")[::2] for line in metrics.splitlines())
        runs = float(counted['kubelet_credential_provider_plugin_duration_count{plugin_name="tester"}'])
        errors = float(counted['kubelet_credential_provider_plugin_errors_total{plugin_name="tester"}'])
        assert 1 <= errors < runs
        for name in ("guest", "second"):
            node.remove(name)
        await agent.until(lambda pods: not pods, what="the end of the pods")
        assert await agent.stop() == 0
    assert files_with(node.root, secrets) == []
    assert [secret for secret in secrets if secret in node.log.read_bytes()] == []
