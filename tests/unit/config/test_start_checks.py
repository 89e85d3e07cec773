import pytest

from klet.config.configuration_flags import set_field
from klet.config.errors import ConfigError
from klet.config.flags import KubeletFlags
from klet.config.gates import resolve_gates
from klet.config.start_checks import check_start

GATES = resolve_gates({})
RUN = "failed to run Kubelet: "
CREATE = f"{RUN}failed to create kubelet: "
STANDALONE = {
    "authentication.webhook.enabled": False,
    "authentication.anonymous.enabled": True,
    "authorization.mode": "AlwaysAllow",
}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        pytest.param({"tlsCipherSuites": ["TLS_ROT13"]}, "failed to construct kubelet dependencies: Cipher suite "
                     "TLS_ROT13 not supported or doesn't exist", id="an unknown cipher"),
        pytest.param({"tlsMinVersion": "TLS1"}, 'failed to construct kubelet dependencies: unknown tls version "TLS1"',
                     id="an unknown TLS version"),
        pytest.param({"authentication.webhook.enabled": True}, f"{RUN}no client provided, cannot use webhook "
                     "authentication", id="webhook authentication without an API server"),
        pytest.param({"authentication.anonymous.enabled": False}, f"{RUN}no authentication method configured: set ",
                     id="nobody could be let in"),
        pytest.param({"authorization.mode": "Webhook"}, f"{RUN}no client provided, cannot use webhook authorization",
                     id="webhook authorization without an API server"),
        pytest.param({"authorization.mode": "Maybe"}, f"{RUN}unknown authorization mode Maybe", id="an unknown mode"),
        pytest.param({"kubeReserved": {"gpu": "1"}}, f"{RUN}--kube-reserved value failed to parse: cannot reserve "
                     '"gpu" resource', id="what cannot be reserved"),
        pytest.param({"systemReserved": {"cpu": "-1"}}, f"{RUN}--system-reserved value failed to parse: resource "
                     'quantity for "cpu" cannot be negative: -1', id="less than nothing reserved"),
        pytest.param({"evictionHard": {"disk": "1"}}, f"{RUN}unsupported eviction signal disk", id="an unknown signal"),
        pytest.param({"qosReserved": {"cpu": "5%"}}, f"{RUN}--qos-reserved value failed to parse: unsupported resource "
                     '"cpu"', id="a QoS share of something else"),
        pytest.param({"cpuManagerPolicy": "x"}, f'{RUN}unknown policy: "x"', id="an unknown CPU policy"),
        pytest.param({"memoryManagerPolicy": "x"}, f'{RUN}unknown policy: "x"', id="an unknown memory policy"),
        pytest.param({"syncFrequency": "-1s"}, f"{CREATE}invalid sync frequency -1000000000", id="no sync frequency"),
        pytest.param({"containerLogMaxSize": "big"}, f'{CREATE}containerLogMaxSize "big": quantities must match',
                     id="a log size that is none"),
        pytest.param({"allowedUnsafeSysctls": ["kernel.*.x"]}, f'{CREATE}sysctl "kernel.*.x" must have at most 253 '
                     "characters and match regex", id="a bad sysctl pattern"),
        pytest.param({"allowedUnsafeSysctls": ["kernel.*"]}, f'{CREATE}the sysctls "kernel.*" are not known to be '
                     "namespaced", id="sysctls of the machine"),
    ],
)  # fmt: skip
def test_standalone(load, fields, message):
    with pytest.raises(ConfigError) as caught:
        check_start(load({**STANDALONE, **fields}), KubeletFlags(), GATES)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("fields", "flags", "message"),
    [
        ({"configMapAndSecretChangeDetectionStrategy": "Guess"}, {}, f"{CREATE}unknown configmap and secret"),
        ({}, {"node_ip": "1.2.3.4,::"}, f'{CREATE}bad --node-ip "1.2.3.4,::"'),
        ({}, {"cloud_provider": "gce"}, f'{RUN}cloud provider "gce" was specified'),
    ],
    ids=["an unknown strategy", "a bad node address", "a built-in cloud"],
)  # fmt: skip
def test_with_an_api_server(load, fields, flags, message):
    with pytest.raises(ConfigError) as caught:
        check_start(load(fields), KubeletFlags(kubeconfig="/k", **flags), GATES)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({}, id="defaults"),
        pytest.param({"allowedUnsafeSysctls": ["kernel.msg*", "net/ipv4/tcp_*", "net.*", "kernel.shm_rmid_forced"]},
                     id="sysctl patterns"),
        pytest.param({"containerLogMaxSize": "-1"}, id="a negative log size switches rotation off"),
        pytest.param({"tlsCipherSuites": ["TLS_AES_128_GCM_SHA256"], "tlsMinVersion": "VersionTLS12"}, id="TLS"),
    ],
)  # fmt: skip
def test_good_settings(load, fields):
    check_start(load({**STANDALONE, **fields}), KubeletFlags(), GATES)


def test_an_empty_authorization_mode_from_a_flag(load):
    config = load(STANDALONE)
    config = set_field(config, "authorization.mode", "")
    with pytest.raises(ConfigError, match="no authorization mode specified"):
        check_start(config, KubeletFlags(), GATES)


def test_webhooks_are_fine_with_an_api_server(load):
    check_start(load({}), KubeletFlags(kubeconfig="/k"), GATES)
