import pytest

from klet.config.command_line import Settings
from klet.config.errors import ConfigError
from klet.config.files import DirectoryEntry
from klet.config.loader import list_directory, load_command_line, read_credential_providers

HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
PROVIDERS = """\
apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
- name: {name}
  apiVersion: credentialprovider.kubelet.k8s.io/v1
  matchImages: ["*.example.com"]
  defaultCacheDuration: 1m
"""


def test_files_of_the_machine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "k.yaml").write_text(
        f"{HEAD}authentication: {{webhook: {{enabled: false}}}}\nauthorization: {{mode: AlwaysAllow}}\n"
        "staticPodPath: pods\n"
    )
    drop_in = tmp_path / "k.d" / "10.conf"
    drop_in.parent.mkdir()
    drop_in.write_text(f"{HEAD}maxPods: 9\n")
    settings = load_command_line(["--config=k.yaml", "--config-dir=k.d"], cgroup_v1=False)
    assert isinstance(settings, Settings)
    assert settings.config.max_pods == 9
    assert settings.config.static_pod_path == str(tmp_path / "pods")


def test_a_link_to_a_directory_is_not_a_directory(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert set(list_directory(str(tmp_path))) == {DirectoryEntry("real", True), DirectoryEntry("link", False)}


def test_credential_providers_of_a_file(tmp_path):
    file = tmp_path / "c.yaml"
    file.write_text(PROVIDERS.format(name="a"))
    assert [provider.name for provider in read_credential_providers(str(file), use_tokens=True).config.providers] == [
        "a"
    ]


def test_credential_providers_of_a_directory(tmp_path):
    (tmp_path / "2.yaml").write_text(PROVIDERS.format(name="b"))
    (tmp_path / "1.json").write_text(PROVIDERS.format(name="a"))
    (tmp_path / "sub.yaml").mkdir()
    loaded = read_credential_providers(str(tmp_path), use_tokens=True)
    assert [provider.name for provider in loaded.config.providers] == ["a", "b"]


@pytest.mark.parametrize(("path", "message"), [("", "path is empty"), ("/nowhere/c.yaml", "no such file or directory")])
def test_missing_credential_providers(path, message):
    with pytest.raises(ConfigError, match=message):
        read_credential_providers(path, use_tokens=True)
