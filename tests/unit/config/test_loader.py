import pytest

from klet.config.command_line import Settings
from klet.config.errors import ConfigError
from klet.config.files import DirectoryEntry
from klet.config.flags import KubeletFlags
from klet.config.loader import (
    LARGEST_FILE,
    check_credential_providers,
    list_directory,
    load_command_line,
    read_credential_providers,
    read_file,
)

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
        f"{HEAD}authentication: {{webhook: {{enabled: false}}, anonymous: {{enabled: true}}}}\n"
        "authorization: {mode: AlwaysAllow}\n"
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


def test_a_file_of_the_largest_size_is_read(tmp_path):
    file = tmp_path / "k.yaml"
    file.write_bytes(b"#" * LARGEST_FILE)
    assert len(read_file(str(file))) == LARGEST_FILE


def test_a_larger_file_is_not_read(tmp_path):
    file = tmp_path / "k.yaml"
    with file.open("wb") as sparse:
        sparse.truncate(100 << 20)
    with pytest.raises(ConfigError, match=f"open {file}: file too large: more than 1048576 bytes"):
        load_command_line([f"--config={file}"], cgroup_v1=False)


def test_a_directory_is_no_configuration(tmp_path):
    with pytest.raises(ConfigError, match=f"open {tmp_path}: is a directory"):
        load_command_line([f"--config={tmp_path}"], cgroup_v1=False)


def test_a_file_is_no_directory_of_drop_ins(tmp_path):
    file = tmp_path / "k.d"
    file.touch()
    with pytest.raises(ConfigError, match=f"lstat {file}: not a directory"):
        load_command_line([f"--config-dir={file}"], cgroup_v1=False)


@pytest.fixture
def providers(tmp_path):
    """A configuration of one provider, and a directory for programs."""
    (tmp_path / "c.yaml").write_text(PROVIDERS.format(name="a"))
    (tmp_path / "bin").mkdir()
    return KubeletFlags(
        image_credential_provider_config=str(tmp_path / "c.yaml"),
        image_credential_provider_bin_dir=str(tmp_path / "bin"),
    )


def test_credential_providers_with_their_programs_are_fine(tmp_path, providers):
    (tmp_path / "bin" / "a").touch(mode=0o755)
    loaded = check_credential_providers(providers, use_tokens=True)
    assert loaded is not None
    assert [provider.name for provider in loaded.config.providers] == ["a"]


def test_a_node_without_credential_providers():
    assert check_credential_providers(KubeletFlags(), use_tokens=True) is None


@pytest.mark.parametrize("mode", [None, 0o644], ids=["not there", "not executable"])
def test_a_credential_provider_without_a_program(tmp_path, providers, mode):
    if mode is not None:
        (tmp_path / "bin" / "a").touch(mode=mode)
    with pytest.raises(ConfigError, match=f"plugin binary executable {tmp_path}/bin/a did not exist or may not be"):
        check_credential_providers(providers, use_tokens=True)


def test_credential_providers_without_a_directory_of_programs(tmp_path, providers):
    (tmp_path / "bin").rmdir()
    with pytest.raises(ConfigError, match=f"plugin binary directory {tmp_path}/bin did not exist"):
        check_credential_providers(providers, use_tokens=True)


def test_programs_without_a_configuration_of_credential_providers(tmp_path):
    flags = ["--address=127.0.0.1", f"--image-credential-provider-bin-dir={tmp_path}"]
    with pytest.raises(
        ConfigError,
        match="Failed to register CRI auth plugins: --image-credential-provider-config: credential provider config "
        "path is empty",
    ):
        load_command_line(flags, cgroup_v1=False)
