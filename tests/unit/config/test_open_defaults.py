"""Without a configuration file upstream is open to everybody; klet requires that this is set on purpose."""

import pytest

from klet.config.command_line import Settings
from klet.config.errors import ConfigError

API = "everybody who reaches 0.0.0.0:10250 could run commands in every pod"
TOKENS = "everybody with a token of the cluster, such as each pod has, could run commands in every pod"
READERS = "everybody who reaches 0.0.0.0:10255 could read all pods"
CA = {"/etc/ca.crt": "-----BEGIN CERTIFICATE-----\n", "/etc/kubeconfig": "kind: Config\n"}


@pytest.mark.parametrize(
    ("argv", "found", "absent"),
    [
        pytest.param([], (API, READERS), (), id="nothing at all"),
        pytest.param(["--kubeconfig=/etc/kubeconfig"], (API, READERS), (), id="a node of a cluster"),
        pytest.param(["--read-only-port=0"], (API,), (READERS,), id="no port for readers"),
        pytest.param(["--enable-server=false"], (READERS,), (API,), id="the port for readers alone"),
        pytest.param(["--anonymous-auth=false", "--client-ca-file=/etc/ca.crt"], (READERS,), (API,),
                     id="only those with a certificate"),
        pytest.param(["--client-ca-file=/etc/ca.crt", "--read-only-port=0"], (API,), (READERS,),
                     id="those with a certificate and all others"),
        pytest.param(["--anonymous-auth=true", "--read-only-port=0"], (API,), (), id="half of it is asked for"),
        pytest.param(["--authorization-mode=AlwaysAllow", "--read-only-port=0"], (API,), (), id="the other half is"),
        pytest.param(["--anonymous-auth=true", "--authorization-mode=AlwaysAllow"], (READERS,), (API,),
                     id="readers are not mentioned"),
        pytest.param(["--kubeconfig=/etc/kubeconfig", "--anonymous-auth=false", "--authentication-token-webhook",
                      "--read-only-port=0"], (TOKENS,), (API, READERS), id="every token of the cluster"),
        pytest.param(["--address=::"], ("reaches [::]:10250 could", "reaches [::]:10255 could"), (),
                     id="both families"),
        pytest.param(["--address=192.0.2.7", "--port=1", "--read-only-port=0"], ("reaches 192.0.2.7:1 could",), (),
                     id="one address of the machine"),
    ],
)  # fmt: skip
def test_open_by_default_is_refused(parse, argv, found, absent):
    with pytest.raises(ConfigError) as refused:
        parse(*argv, files=CA)
    said = str(refused.value)
    assert all(each in said for each in found)
    assert not any(each in said for each in absent)


@pytest.mark.parametrize(
    "argv",
    [
        pytest.param(["--address=127.0.0.1"], id="for this machine alone"),
        pytest.param(["--address=::1"], id="for this machine alone, in the other family"),
        pytest.param(["--enable-server=false", "--read-only-port=0"], id="for nobody"),
        pytest.param(["--anonymous-auth=false", "--client-ca-file=/etc/ca.crt", "--read-only-port=0"],
                     id="for those with a certificate"),
        pytest.param(["--kubeconfig=/etc/kubeconfig", "--anonymous-auth=false", "--authentication-token-webhook",
                      "--authorization-mode=Webhook", "--read-only-port=0"], id="for those whom the cluster lets"),
        pytest.param(["--kubeconfig=/etc/kubeconfig", "--anonymous-auth=false", "--authentication-token-webhook",
                      "--authorization-mode=AlwaysAllow", "--read-only-port=0"],
                     id="for every token, as somebody wrote"),
        pytest.param(["--anonymous-auth=true", "--authorization-mode=AlwaysAllow", "--read-only-port=10255"],
                     id="for everybody, as somebody wrote"),
    ],
)  # fmt: skip
def test_what_somebody_decided_starts(parse, argv):
    assert isinstance(parse(*argv, files=CA), Settings)


def test_a_file_decides_too(parse, as_document):
    everybody = {
        "authentication": {"webhook": {"enabled": False}, "anonymous": {"enabled": True}},
        "authorization": {"mode": "AlwaysAllow"},
        "readOnlyPort": 10255,
    }
    for files, argv in (
        ({"/etc/k.yaml": as_document(everybody)}, "--config=/etc/k.yaml"),
        ({"/etc/k.d/1.conf": as_document(everybody)}, "--config-dir=/etc/k.d"),
    ):
        assert isinstance(parse(argv, files=files), Settings)


def test_drop_ins_that_say_nothing_about_it_are_refused(parse, as_document):
    with pytest.raises(ConfigError, match=r"could read all pods .*, path: /etc/k\.d/\*\.conf$"):
        parse("--config-dir=/etc/k.d", files={"/etc/k.d/1.conf": as_document({"maxPods": 9})})


def test_the_refusal_names_safe_settings_first_and_openness_last(parse):
    with pytest.raises(ConfigError) as refused:
        parse("--kubeconfig=/etc/kubeconfig", files=CA)
    said = str(refused.value)
    places = [
        said.index(each)
        for each in (
            "--anonymous-auth=false (authentication.anonymous.enabled)",
            "--client-ca-file=FILE",
            "--authentication-token-webhook",
            "--authorization-mode=Webhook (authorization.mode)",
            "--address=127.0.0.1",
            "--enable-server=false",
            "--anonymous-auth=true",
            "--authorization-mode=AlwaysAllow",
            "--read-only-port=0 (readOnlyPort)",
            "--read-only-port=10255",
        )
    ]
    assert places == sorted(places)
    assert said.endswith(", path: command line")


def test_a_node_without_an_api_server_gets_no_advice_to_ask_one(parse):
    with pytest.raises(ConfigError) as refused:
        parse()
    assert "ebhook" not in str(refused.value)
