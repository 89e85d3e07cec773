import json

import pytest

from klet.config.errors import ConfigError
from klet.config.files import (
    DirectoryEntry,
    encode_configuration,
    list_drop_ins,
    load_configuration,
    mask_secrets,
    merge_drop_ins,
    merge_patch,
)
from klet.config.sections import Tracing

HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
PREFIX = (
    "failed to load kubelet config file, path: /etc/k.yaml, error: failed to load Kubelet config file /etc/k.yaml, "
    "error "
)


def load_text(text, **gates):
    return load_configuration("/etc/k.yaml", text.encode(), flag_gates=gates)


def test_yaml_and_json_are_the_same():
    fields = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", "maxPods": 5}
    assert load_text(json.dumps(fields)) == load_text(f"{HEAD}maxPods: 5\n")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", 'kubelet config file "/etc/k.yaml" was empty', id="an empty file"),
        pytest.param("port: 1\n", "failed to decode: Object 'Kind' is missing: write kind: KubeletConfiguration, "
                     "apiVersion: kubelet.config.k8s.io/v1beta1", id="no kind"),
        pytest.param("kind: KubeletConfiguration\n", "failed to decode: Object 'apiVersion' is missing: write kind: "
                     "KubeletConfiguration, apiVersion: kubelet.config.k8s.io/v1beta1", id="no version"),
        pytest.param("kind: [a]\napiVersion: kubelet.config.k8s.io/v1beta1\n",
                     "failed to decode: Object 'Kind' is missing: write kind: KubeletConfiguration, "
                     "apiVersion: kubelet.config.k8s.io/v1beta1", id="a list as the kind"),
        pytest.param("kind: Pod\napiVersion: v1\n", 'failed to decode: no kind "Pod" is registered for version "v1": '
                     "write kind: KubeletConfiguration, apiVersion: kubelet.config.k8s.io/v1beta1", id="a pod"),
        pytest.param("kind: CredentialProviderConfig\napiVersion: kubelet.config.k8s.io/v1beta1\n",
                     "failed to cast object to KubeletConfiguration, unexpected type: CredentialProviderConfig",
                     id="another kind of the group"),
        pytest.param(f"{HEAD}port: http\n", 'failed to decode: field "port": expected an integer, got a string',
                     id="a word for a number"),
        pytest.param(f"{HEAD}syncFrequency: 5\n", 'failed to decode: field "syncFrequency": expected a duration such '
                     'as "1m30s", got a number', id="a number for a duration"),
        pytest.param(f"{HEAD}syncFrequency: 5 minutes\n", 'failed to decode: field "syncFrequency": time: unknown unit '
                     '" minutes" in duration "5 minutes"', id="a bad duration"),
        pytest.param(f"{HEAD}clusterDNS: 10.0.0.1\n", 'failed to decode: field "clusterDNS": expected a list, got a '
                     "string", id="a word for a list"),
        pytest.param(f"{HEAD}clusterDNS: [1]\n", 'failed to decode: field "clusterDNS[0]": expected a string, got a '
                     "number", id="a number in a list of words"),
        pytest.param(f"{HEAD}kubeReserved: {{cpu: 1}}\n", 'failed to decode: field "kubeReserved.cpu": expected a '
                     "string, got a number", id="a number in a map of words"),
        pytest.param(f"{HEAD}authentication: []\n", 'failed to decode: field "authentication": expected an object, got '
                     "a list", id="a list for an object"),
        pytest.param(f"{HEAD}reservedMemory: [{{numaNode: 0, limits: {{memory: 1GG}}}}]\n",
                     'failed to decode: field "reservedMemory[0].limits.memory": unable to parse quantity\'s suffix',
                     id="a bad quantity"),
        pytest.param(f"{HEAD}featureGates: {{Nonsense: true}}\n",
                     "failed to merge global and in-flight KubeletConfiguration while setting defaults, error: "
                     "unrecognized feature gate: Nonsense", id="an unknown gate"),
    ],
)  # fmt: skip
def test_bad_file_is_one_message(text, message):
    with pytest.raises(ConfigError) as caught:
        load_text(text)
    assert str(caught.value) == PREFIX + message


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param("colour: red\n", 'unknown field "colour"', id="an unknown field"),
        pytest.param("maxPod: 5\n", 'unknown field "maxPod" (did you mean "maxPods"?)', id="a near miss"),
        pytest.param("authentication: {colour: red}\n", 'unknown field "authentication.colour"', id="a nested one"),
        pytest.param("reservedMemory: [{colour: 1}]\n", 'unknown field "reservedMemory[0].colour"', id="one in a list"),
        pytest.param("maxPods: 1\nmaxPods: 5\n", 'duplicate field "maxPods"', id="a field written twice"),
        pytest.param("maxPods: 1\nmaxPods: 5\nx: 1\n", 'duplicate field "maxPods", unknown field "x"', id="both"),
    ],
)
def test_strict_problems_are_forgiven_with_a_warning(text, problem):
    loaded = load_text(f"{HEAD}{text}")
    assert loaded.warnings == (
        f"Using lenient decoding as strict decoding failed, path: /etc/k.yaml, error: strict decoding error: {problem}",
    )


def test_lenient_decoding_keeps_the_known_fields():
    assert load_text(f"{HEAD}maxPods: 5\ncolour: red\n").config.max_pods == 5


def test_a_good_file_has_no_warnings():
    assert load_text(HEAD).warnings == ()


@pytest.mark.parametrize(
    ("field", "attribute"),
    [
        ("staticPodPath", "static_pod_path"),
        ("tlsCertFile", "tls_cert_file"),
        ("tlsPrivateKeyFile", "tls_private_key_file"),
        ("resolvConf", "resolv_conf"),
        ("volumePluginDir", "volume_plugin_dir"),
        ("podLogsDir", "pod_logs_dir"),
    ],
)
def test_relative_paths_start_at_the_file(field, attribute):
    assert getattr(load_text(f"{HEAD}{field}: ../x/./y\n").config, attribute) == "/x/y"


def test_the_client_ca_is_a_path_too():
    config = load_text(f"{HEAD}authentication: {{x509: {{clientCAFile: ca.crt}}}}\n").config
    assert config.authentication.x509.client_ca_file == "/etc/ca.crt"


def test_empty_paths_stay_empty():
    assert load_text(f'{HEAD}resolvConf: ""\n').config.resolv_conf == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("", {"memory.available": "100Mi", "nodefs.available": "10%", "nodefs.inodesFree": "5%",
                          "imagefs.available": "15%", "imagefs.inodesFree": "5%"}, id="absent: all defaults"),
        pytest.param("evictionHard: {}\n", {}, id="empty: none"),
        pytest.param("evictionHard: {memory.available: 1Gi}\n", {"memory.available": "1Gi"}, id="set: only that"),
        pytest.param("evictionHard: {memory.available: 1Gi}\nmergeDefaultEvictionSettings: true\n",
                     {"memory.available": "1Gi", "nodefs.available": "10%", "nodefs.inodesFree": "5%",
                      "imagefs.available": "15%", "imagefs.inodesFree": "5%"}, id="merged with the defaults"),
    ],
)  # fmt: skip
def test_eviction_defaults(text, expected):
    assert load_text(f"{HEAD}{text}").config.eviction_hard == expected


@pytest.mark.parametrize(
    ("text", "report"),
    [
        pytest.param("", 300, id="both unset"),
        pytest.param("nodeStatusUpdateFrequency: 20s\n", 20, id="it follows a chosen update frequency"),
        pytest.param("nodeStatusUpdateFrequency: 20s\nnodeStatusReportFrequency: 1m\n", 60, id="unless set itself"),
        pytest.param("nodeStatusUpdateFrequency: 0s\n", 300, id="zero is not chosen"),
    ],
)
def test_node_status_report_frequency(text, report):
    assert load_text(f"{HEAD}{text}").config.node_status_report_frequency.total_seconds() == report


@pytest.mark.parametrize(
    ("text", "serial"),
    [
        pytest.param("", True, id="serial by default"),
        pytest.param("maxParallelImagePulls: 1\n", True, id="one at a time is serial"),
        pytest.param("maxParallelImagePulls: 2\n", False, id="two are not"),
        pytest.param("maxParallelImagePulls: 2\nserializeImagePulls: true\n", True, id="an explicit word stays"),
    ],
)
def test_serialize_image_pulls(text, serial):
    assert load_text(f"{HEAD}{text}").config.serialize_image_pulls is serial


@pytest.mark.parametrize(("limit", "effective"), [(-5, -1), (0, 0), (7, 7)])
def test_pod_pids_limit(limit, effective):
    assert load_text(f"{HEAD}podPidsLimit: {limit}\n").config.pod_pids_limit == effective


@pytest.mark.parametrize(
    ("gate", "path"),
    [
        ("KubeletCrashLoopBackOffMax", "crashLoopBackOff"),
        ("KubeletEnsureSecretPulledImages", "imagePullCredentialsVerificationPolicy"),
    ],
)
def test_gated_defaults_stay_away_when_the_gate_is_off(gate, path):
    for config in (load_text(HEAD, **{gate: False}), load_text(f"{HEAD}featureGates: {{{gate}: false}}\n")):
        assert not encode_configuration(config.config).get(path)


def drop_in(text, name="10-a.conf"):
    return (f"/etc/k.d/{name}", f"{HEAD}{text}".encode())


def merged(base, *texts):
    config = load_text(f"{HEAD}{base}").config
    drop_ins = [drop_in(text, f"{index}0.conf") for index, text in enumerate(texts, 1)]
    return merge_drop_ins(config, drop_ins, flag_gates={})


@pytest.mark.parametrize(
    ("base", "texts", "expected"),
    [
        pytest.param("port: 9090\n", ["port: 9090\n", "port: 8080\nreadOnlyPort: 10255\n"],
                     {"port": 8080, "read_only_port": 10255}, id="the last file wins"),
        pytest.param("kubeReserved: {memory: 100Mi}\nsyncFrequency: 7s\n",
                     ["kubeReserved: {memory: 150Mi, cpu: 200m}\n", "kubeReserved: {memory: 100Mi}\n"],
                     {"kube_reserved": {"cpu": "200m", "memory": "100Mi"}}, id="maps merge key by key"),
        pytest.param("clusterDNS: [a, b]\n", ["maxPods: 1\n", "clusterDNS: [c, d, e]\n"],
                     {"cluster_dns": ("c", "d", "e")}, id="lists are replaced whole"),
        pytest.param("port: 9090\n", ["port: 0\n"], {"port": 10250}, id="a zero is defaulted again"),
        pytest.param("healthzPort: 9090\n", ["healthzPort: 0\n"], {"healthz_port": 0}, id="a pointer keeps its zero"),
        pytest.param("healthzPort: 0\n", ["port: 1\n"], {"healthz_port": 0}, id="the zero of the file survives"),
        pytest.param("healthzPort: 9\n", ["healthzPort: null\n"], {"healthz_port": 10248}, id="null removes"),
        pytest.param("enforceNodeAllocatable: []\n", ["port: 1\n"], {"enforce_node_allocatable": ("pods",)},
                     id="an empty list of the file is written as nothing"),
        pytest.param("", ["enforceNodeAllocatable: []\n"], {"enforce_node_allocatable": ()},
                     id="an empty list of a drop-in stays"),
        pytest.param("", ["staticPodPath: pods\n"], {"static_pod_path": "pods"}, id="paths are left alone"),
        pytest.param("", ["colour: red\nport: 7\n"], {"port": 7}, id="unknown fields are dropped"),
        pytest.param("", ["evictionHard: {memory.available: 1Gi}\n"],
                     {"eviction_hard": {"memory.available": "1Gi", "nodefs.available": "10%", "nodefs.inodesFree": "5%",
                                        "imagefs.available": "15%", "imagefs.inodesFree": "5%"}},
                     id="a threshold merges with the defaults of the file"),
        pytest.param("evictionHard: {memory.available: 1Gi}\n", ["mergeDefaultEvictionSettings: true\n"],
                     {"eviction_hard": {"memory.available": "1Gi"}}, id="asking for default thresholds comes too late"),
        pytest.param("featureGates: {EventedPLEG: true}\n", ["featureGates: {MemoryQoS: true}\n"],
                     {"feature_gates": {"EventedPLEG": True, "MemoryQoS": True}}, id="gates merge"),
    ],
)  # fmt: skip
def test_drop_ins(base, texts, expected):
    config = merged(base, *texts)
    assert {name: getattr(config, name) for name in expected} == expected


def test_derived_defaults_do_not_fire_for_a_drop_in():
    config = merged("", "nodeStatusUpdateFrequency: 20s\nmaxParallelImagePulls: 4\n")
    assert config.node_status_report_frequency.total_seconds() == 300
    assert config.serialize_image_pulls is True


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("", 'kubelet config file "/etc/k.d/a.conf" was empty', id="an empty file"),
        pytest.param("apiVersion: kubelet.config.k8s.io/v1beta2\nkind: KubeletConfiguration\n",
                     "unknown apiVersion/kind: kubelet.config.k8s.io/v1beta2, Kind=KubeletConfiguration",
                     id="another version"),
        pytest.param("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: X\n",
                     "unknown apiVersion/kind: kubelet.config.k8s.io/v1beta1, Kind=X", id="another kind"),
        pytest.param("apiVersion: kubelet.config.k8s.io/v1beta1\n",
                     "failed to decode: Object 'Kind' is missing: write kind: KubeletConfiguration, apiVersion: "
                     "kubelet.config.k8s.io/v1beta1", id="no kind"),
        pytest.param(f"{HEAD}port: 1\nport: 2\n", 'failed to decode: strict decoding error: duplicate field "port"',
                     id="a field written twice"),
        pytest.param(f"{HEAD}port: x\n", 'failed to decode: field "port": expected an integer, got a string',
                     id="a word for a number"),
    ],
)  # fmt: skip
def test_bad_drop_in(text, message):
    config = load_text(HEAD).config
    with pytest.raises(ConfigError) as caught:
        merge_drop_ins(config, [("/etc/k.d/a.conf", text.encode())], flag_gates={})
    assert str(caught.value) == (
        "failed to load kubelet dropin file, path: /etc/k.d/a.conf, error: "
        f"failed to load drop-in kubelet config file /etc/k.d/a.conf, error {message}"
    )


def test_drop_ins_are_found_in_lexical_order_at_any_depth():
    directories = {
        "/d": [("20.conf", False), ("10.conf", False), ("15", True), ("note.txt", False), (".conf", False),
               ("30.conf.bak", False)],
        "/d/15": [("z.conf", False), ("a.conf", False)],
    }  # fmt: skip

    def list_directory(path):
        return [DirectoryEntry(name, is_directory) for name, is_directory in directories[path]]

    assert list_drop_ins("/d", list_directory) == (
        "/d/.conf",
        "/d/10.conf",
        "/d/15/a.conf",
        "/d/15/z.conf",
        "/d/20.conf",
    )


def test_a_configuration_survives_its_own_encoding():
    config = load_text(
        f"{HEAD}maxPods: 7\nhealthzPort: 0\nreservedMemory: [{{numaNode: 0, limits: {{memory: 1Gi}}}}]\n"
    )
    assert merge_drop_ins(config.config, [], flag_gates={}) == config.config


@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ],
)
def test_merge_patch_follows_rfc_7386(target, patch, expected):
    assert merge_patch(target, patch) == expected


def test_headers_are_masked_for_the_log():
    config = load_text(f"{HEAD}staticPodURLHeader: {{Authorization: [secret, other]}}\nmaxPods: 5\n").config
    masked = mask_secrets(config)
    assert masked.static_pod_url_header == {"Authorization": ("<masked>", "<masked>")}
    assert masked.max_pods == 5


def test_passwords_in_urls_are_masked():
    text = f"{HEAD}staticPodURL: https://me:secret@host/pods\ntracing: {{endpoint: 'me:secret@host:4317'}}\n"
    masked = mask_secrets(load_text(text).config)
    assert masked.static_pod_url == "https://<masked>@host/pods"
    assert masked.tracing == Tracing(endpoint="<masked>@host:4317")
