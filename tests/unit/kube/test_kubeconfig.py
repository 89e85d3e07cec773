"""Kubeconfig files: what a context means, and what is refused."""

import base64
from pathlib import Path

import pytest

from klet.kube.access import ExecPlugin, KeyPair, Login, NoVerification, PemSource, SystemAuthorities
from klet.kube.errors import KubeconfigError
from klet.kube.kubeconfig import LONGEST, load_kubeconfig, parse_kubeconfig

PATH = Path("/etc/kubernetes/kubelet.conf")
PEM = base64.b64encode(b"-----BEGIN").decode()


def config(cluster: str = "server: https://api:6443", user: str = "token: t", current: str = "main") -> str:
    return f"""
apiVersion: v1
kind: Config
clusters:
- name: c
  cluster: {{{cluster}}}
users:
- name: u
  user: {{{user}}}
contexts:
- name: main
  context: {{cluster: c, user: u}}
- name: bare
  context: {{cluster: c}}
current-context: {current}
"""


@pytest.mark.parametrize(
    ("cluster", "authority"),
    [
        pytest.param("", SystemAuthorities(), id="the machine's authorities are trusted if none is given"),
        pytest.param(
            ", certificate-authority: pki/ca.crt",
            PemSource(path=Path("/etc/kubernetes/pki/ca.crt")),
            id="a relative file is relative to the kubeconfig",
        ),
        pytest.param(
            f", certificate-authority: x, certificate-authority-data: {PEM}",
            PemSource(data=b"-----BEGIN"),
            id="inline data wins over a file",
        ),
        pytest.param(", insecure-skip-tls-verify: true", NoVerification(), id="verification can be switched off"),
    ],
)
def test_authority(cluster, authority):
    assert parse_kubeconfig(config(f"server: https://api:6443{cluster}"), path=PATH).authority == authority


@pytest.mark.parametrize(
    ("user", "login"),
    [
        pytest.param("token: t", Login(token="t"), id="a token"),
        pytest.param("tokenFile: t", Login(token_file=Path("/etc/kubernetes/t")), id="a token in a file"),
        pytest.param(
            "client-certificate: /pki/current.pem, client-key: /pki/current.pem",
            Login(pair=KeyPair(PemSource(path=Path("/pki/current.pem")), PemSource(path=Path("/pki/current.pem")))),
            id="a certificate and its key in one file",
        ),
        pytest.param(
            "exec: {apiVersion: client.authentication.k8s.io/v1, command: ./login, args: [a], "
            "env: [{name: A, value: b}]}",
            Login(
                plugin=ExecPlugin(
                    api_version="client.authentication.k8s.io/v1",
                    command="/etc/kubernetes/login",
                    args=("a",),
                    env={"A": "b"},
                )
            ),
            id="a program beside the kubeconfig",
        ),
        pytest.param(
            "exec: {apiVersion: client.authentication.k8s.io/v1, command: login, provideClusterInfo: true}",
            Login(
                plugin=ExecPlugin(
                    api_version="client.authentication.k8s.io/v1",
                    command="login",
                    cluster={"server": "https://api:6443"},
                )
            ),
            id="a program on the PATH that is reported of the cluster",
        ),
    ],
)
def test_login(user, login):
    assert parse_kubeconfig(config(user=user), path=PATH).login == login


def test_server_name_and_proxy():
    text = config("server: https://10.0.0.1:6443/, tls-server-name: api, proxy-url: http://proxy:3128")
    access = parse_kubeconfig(text, path=PATH)
    assert (access.server, access.server_name, access.proxy) == ("https://10.0.0.1:6443", "api", "http://proxy:3128")


def test_a_context_can_be_chosen():
    assert parse_kubeconfig(config(), path=PATH, context="bare").login == Login()


def test_a_single_context_needs_no_choice():
    text = "clusters: [{name: c, cluster: {server: 'http://a'}}]\ncontexts: [{name: x, context: {cluster: c}}]"
    assert parse_kubeconfig(text, path=PATH).server == "http://a"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", 'context "" does not exist; the file has: none', id="an empty file"),
        pytest.param("a: [", "did not find expected node content", id="text that is no YAML"),
        pytest.param("[" * 100_000, "nested more than 100 deep", id="more depth than a parser survives"),
        pytest.param("clusters: 5", "clusters", id="a field of a wrong type"),
        pytest.param(
            config(current="other"), 'context "other" does not exist; the file has: bare, main', id="no context"
        ),
        pytest.param(
            config().replace("name: c\n", "name: d\n"), 'cluster "c" does not exist; the file has: d', id="no cluster"
        ),
        pytest.param(
            config().replace("name: u\n", "name: v\n"), 'user "u" does not exist; the file has: v', id="no user"
        ),
        pytest.param(
            config("server: api:6443"),
            'cluster "c": server: "api:6443" is not an address',
            id="a server without scheme",
        ),
        pytest.param(config("server: 'http://['"), "is not an address", id="half an IPv6 address"),
        pytest.param(config("server: 'https://a:99999'"), "is not an address", id="a port that there is not"),
        pytest.param(config("server: 'https://a:x'"), "is not an address", id="a port that is no number"),
        pytest.param(config("server: 'https://a:0'"), "is not an address", id="port 0"),
        pytest.param(config('server: "https://a\\nb"'), "is not an address", id="an address over two lines"),
        pytest.param(config("server: https://a, proxy-url: 'http://['"), "proxy-url", id="half the address of a proxy"),
        pytest.param(config("server: https://a, certificate-authority-data: é"), "not base64", id="data beyond ASCII"),
        pytest.param(config(user='tokenFile: "a\\0b"'), "zero byte", id="a path that cannot be one"),
        pytest.param(
            config(user='exec: {apiVersion: client.authentication.k8s.io/v1, command: a, args: ["\\0"]}'),
            "exec: must not hold a zero byte",
            id="an argument that cannot be one",
        ),
        pytest.param(config(current='"a\\nb"'), "does not exist", id="a name over two lines"),
        pytest.param(config("server: ''"), 'cluster "c": server: "" is not an address', id="no server"),
        pytest.param(
            config("server: https://a, insecure-skip-tls-verify: true, certificate-authority: ca"),
            "insecure-skip-tls-verify: must not be set beside a certificate-authority",
            id="an authority that would not be asked",
        ),
        pytest.param(
            config("server: https://a, certificate-authority-data: '%%'"),
            'cluster "c": certificate-authority-data: not base64',
            id="data that is no base64",
        ),
        pytest.param(config("server: https://a, proxy-url: socks5://p"), "proxy-url", id="a proxy of another kind"),
        pytest.param(
            config("server: https://a, proxy-url: 'socks5://me:secret@p'"),
            'proxy-url: "socks5://<masked>@p" must start with',
            id="the password of a proxy is not quoted",
        ),
        pytest.param(
            config("server: 'ftp://me:secret@a'"),
            'server: "ftp://<masked>@a" is not an address',
            id="the password of a server is not quoted",
        ),
        pytest.param(
            config(user="client-certificate: a"), 'user "u": client-certificate and client-key', id="half a pair"
        ),
        pytest.param(config(user="username: a"), 'user "u": username: not supported', id="basic authentication"),
        pytest.param(config(user="auth-provider: {name: gcp}"), "auth-provider: not supported", id="an auth provider"),
        pytest.param(
            config(user="exec: {command: a}"), 'exec.apiVersion: "" must be one of', id="a plugin of no version"
        ),
        pytest.param(
            config(user="exec: {apiVersion: client.authentication.k8s.io/v1}"),
            "exec.command",
            id="a plugin of no command",
        ),
    ],
)
def test_refused(text, message):
    with pytest.raises(KubeconfigError) as caught:
        parse_kubeconfig(text, path=PATH)
    assert str(caught.value).startswith(f"invalid kubeconfig: {PATH}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(config(f"server: {'x' * 100_000}"), id="a server"),
        pytest.param(config(current="x" * 100_000), id="a context"),
        pytest.param(config().replace("name: c\n", f"name: {'x' * 100_000}\n"), id="the names that there are"),
        pytest.param(config(user=f"exec: {{apiVersion: {'x' * 100_000}}}"), id="a version"),
        pytest.param(config(user=f"auth-provider: {{}}, tokenFile: {'x' * 100_000}"), id="a path"),
    ],
)
def test_long_values_are_not_quoted_whole(text):
    with pytest.raises(KubeconfigError) as caught:
        parse_kubeconfig(text, path=PATH)
    assert len(str(caught.value)) < 4096


def test_a_file_that_is_too_long_is_refused(tmp_path):
    path = tmp_path / "kubeconfig"
    path.write_bytes(b"#" * (LONGEST + 1))
    with pytest.raises(KubeconfigError, match=f"longer than {LONGEST} bytes"):
        load_kubeconfig(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("a: " + "9" * 5000, "does not exist", id="a number of thousands of digits"),
        pytest.param("a: 2026-99-99", "does not exist", id="a day that there is not"),
        pytest.param(f"current-context: {'x' * 5000}", "does not exist", id="a long name"),
    ],
)
def test_values_of_any_kind_are_no_surprise(text, message):
    with pytest.raises(KubeconfigError, match=message):
        parse_kubeconfig(text, path=Path("/etc/k"))


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(KubeconfigError, match=f"invalid kubeconfig: {tmp_path}/none: "):
        load_kubeconfig(tmp_path / "none")


def test_secrets_are_not_shown():
    login = parse_kubeconfig(config(user="token: hidden"), path=PATH).login
    assert "hidden" not in repr(login)
