"""Every setting is acted upon, or stands in the table of those that are not. Nobody can forget one."""

import re
import typing
from pathlib import Path

import msgspec
import pytest

import klet
from klet.config.configuration import KubeletConfiguration
from klet.config.flags import KUBELET_FLAGS, KubeletFlags
from klet.config.flagset import FlagTarget
from klet.config.gates import KUBELET_GATES
from klet.config.klet import KletConfiguration
from klet.config.without_effect import FIELDS, FLAGS, GATES, IDLE_GATES

SOURCE = Path(klet.__file__).parent
PAIR = re.compile(r"(?=\b([a-z]\w*\.[a-z]\w*)\b)")
IN_CONFIG = {
    "failCgroupV1": "validation refuses cgroup v1 by it",
    "runOnce": "validation refuses it",
    "mergeDefaultEvictionSettings": "the loader merges by it",
    "featureGates": "the gates are asked",
    "systemReserved": "effective_reservations",
    "kubeReserved": "effective_reservations",
    "reservedSystemCPUs": "effective_reservations",
    "evictionHard": "parse_thresholds",
}
"""Fields that only `config/` reads, and that do something all the same."""
FLAGS_IN_CONFIG = {
    "config": "the loader reads it",
    "config_dir": "the loader reads it",
    "hostname_override": "choose_node_name",
    "image_credential_provider_config": "the loader reads it",
    "seccomp_default": "it is laid over seccompDefault",
}
GATES_IN_CONFIG = {
    "CPUManagerPolicyAlphaOptions": "cpuManagerPolicyOptions are refused by it",
    "CPUManagerPolicyBetaOptions": "cpuManagerPolicyOptions are refused by it",
    "TopologyManagerPolicyOptions": "topologyManagerPolicyOptions are refused by it",
    "KubeletCrashLoopBackOffMax": "crashLoopBackOff has a default by it",
    "KubeletServiceAccountTokenForCredentialProviders": "tokenAttributes of a credential provider is refused by it",
    "LoggingAlphaOptions": "splitStream and infoBufferSize are refused by it",
    "LoggingBetaOptions": "the format json is refused by it",
    "RotateKubeletServerCertificate": "serverTLSBootstrap is refused by it",
}
STANDALONE = {
    "authentication.webhook.enabled": False,
    "authentication.anonymous.enabled": True,
    "authorization.mode": "AlwaysAllow",
}


@pytest.fixture
def with_file(settle, as_document):
    def with_file(fields, *argv):
        return settle("--config=/etc/k.yaml", *argv, files={"/etc/k.yaml": as_document({**STANDALONE, **fields})})

    return with_file


@pytest.fixture(scope="module")
def outside():
    """What the code that could act reads: everything but the configuration itself, and what only tests use."""
    places = (path for path in SOURCE.rglob("*.py") if path.relative_to(SOURCE).parts[0] not in ("config", "testing"))
    return frozenset(pair for path in places for pair in PAIR.findall(path.read_text()))


def leaves(struct, names=(), wire=()):
    """The fields of a struct and of the sections in it: attributes and wire names."""
    for field in msgspec.structs.fields(struct):
        kinds = field.type, *(() if typing.get_origin(field.type) is tuple else typing.get_args(field.type))
        section = next((each for each in kinds if isinstance(each, type) and issubclass(each, msgspec.Struct)), None)
        path, shown = (*names, field.name), (*wire, field.encode_name)
        if section is None:
            yield path, ".".join(shown)
        else:
            yield from leaves(section, path, shown)


def is_read(pairs, owner, name):
    return f"{owner}.{name}" in pairs


def test_every_field_acts_or_stands_in_the_table(outside):
    rows = {row.name: row for row in FIELDS}
    found = {shown: is_read(outside, *("config", *path)[-2:]) for path, shown in leaves(KubeletConfiguration)}
    assert rows.keys() <= found.keys()
    acting = {name for name, is_used in found.items() if is_used} | IN_CONFIG.keys()
    assert found.keys() - acting - rows.keys() == set()
    assert {name for name in acting & rows.keys() if not rows[name].is_partly} == set()


def test_what_acts_through_the_configuration_is_called():
    code = "".join(path.read_text() for package in ("app", "node") for path in (SOURCE / package).rglob("*.py"))
    called = {"effective_reservations", "parse_thresholds", "choose_node_name"}
    assert {name for name in called if f"{name}(" in code} == called


def test_every_flag_acts_or_stands_in_the_table(outside):
    rows = {row.name for row in FLAGS}
    fields = {flag.field: flag.name for flag in KUBELET_FLAGS if flag.target is FlagTarget.FLAGS}
    assert fields.keys() == {field.name for field in msgspec.structs.fields(KubeletFlags)}
    acting = {name for field, name in fields.items() if field in FLAGS_IN_CONFIG or is_read(outside, "flags", field)}
    assert acting & rows == set()
    assert acting | rows | {"help", "version"} == {flag.name for flag in KUBELET_FLAGS}


def test_every_setting_of_klets_own_acts(outside):
    assert [name for path, name in leaves(KletConfiguration) if not is_read(outside, "klet", *path)] == []


def test_every_gate_acts_or_stands_in_the_table():
    asking = (path.read_text() for path in SOURCE.rglob("*.py") if "config" not in path.relative_to(SOURCE).parts[:1])
    code = "\n".join(text for text in asking if "gates.enabled" in text or "GATED_FIELDS" in text)
    movable = {gate.name for gate in KUBELET_GATES if not gate.locked}
    acting = {name for name in movable if f'"{name}"' in code} | GATES_IN_CONFIG.keys()
    assert movable - acting == GATES | IDLE_GATES
    assert not GATES & IDLE_GATES


@pytest.mark.parametrize(
    ("fields", "warning"),
    [
        pytest.param({"evictionSoft": {"pid.available": "10%"}, "evictionSoftGracePeriod": {"pid.available": "1m"}},
                     "evictionSoft (--eviction-soft) has no effect yet: pods are not evicted", id="soft eviction"),
        pytest.param({"evictionHard": {"memory.available": "1Gi"}}, "evictionHard (--eviction-hard): pods are not "
                     "evicted: it only lowers what the Node reports as allocatable", id="hard eviction"),
        pytest.param({"shutdownGracePeriod": "30s"}, "shutdownGracePeriod has no effect yet: pods are not stopped in "
                     "order when the machine shuts down", id="a shutdown in order"),
        pytest.param({"featureGates.KubeletSeparateDiskGC": False, "featureGates.GitRepoVolumeDriver": True},
                     "featureGates (--feature-gates): klet does not ask about these gates yet: "
                     "GitRepoVolumeDriver=true, KubeletSeparateDiskGC=false", id="gates"),
    ],
)  # fmt: skip
def test_warned_of_once(with_file, fields, warning):
    assert with_file(fields).without_effect.count(warning) == 1


@pytest.mark.parametrize(
    ("flags", "warning"),
    [
        pytest.param(["--experimental-mounter-path=/x"], "--experimental-mounter-path has no effect yet: klet mounts "
                     "by itself", id="a flag without a field"),
        pytest.param(["--boot-id-file=/x"], "--boot-id-file has no effect yet: klet has no cAdvisor", id="cAdvisor"),
        pytest.param(["--eviction-max-pod-grace-period=5"], "evictionMaxPodGracePeriod "
                     "(--eviction-max-pod-grace-period) has no effect yet: pods are not evicted", id="of a field"),
    ],
)  # fmt: skip
def test_flags_warned_of_once(with_file, flags, warning):
    assert with_file({}, *flags).without_effect.count(warning) == 1


@pytest.mark.parametrize(
    ("fields", "flags"),
    [
        pytest.param({}, [], id="nothing"),
        pytest.param({"evictionPressureTransitionPeriod": "0s", "imageMinimumGCAge": "0s"}, [], id="as kubeadm writes"),
        pytest.param({"evictionSoft": {}, "containerLogMaxFiles": 5, "cpuManagerPolicy": "none"}, [], id="defaults"),
        pytest.param({}, ["--experimental-mounter-path=", "--containerd-namespace=k8s.io"], id="the defaults of flags"),
        pytest.param({"featureGates.KubeletPSI": False}, ["--housekeeping-interval=1s", "--runtime-cgroups=/runtime"],
                     id="what the statistics take account of"),
        pytest.param({"serializeImagePulls": False, "maxParallelImagePulls": 3, "registryPullQPS": 1,
                      "imagePullCredentialsVerificationPolicy": "AlwaysVerify"}, [], id="how images are pulled"),
        pytest.param({"makeIPTablesUtilChains": False}, [], id="what it lacks"),
        pytest.param({"systemReserved": {"memory": "1Gi"}, "enforceNodeAllocatable": ["pods", "system-reserved"],
                      "systemReservedCgroup": "/system", "kubeletCgroups": "/agent"}, [], id="node allocatable"),
        pytest.param({"featureGates.KubeletPSI": True}, [], id="a gate as it is"),
        pytest.param({"featureGates.VolumeLimitScaling": True}, [], id="a gate that only the scheduler asks about"),
    ],
)  # fmt: skip
def test_not_warned_of(with_file, fields, flags):
    assert with_file(fields, *flags).without_effect == ()
