import pytest

from klet.config.command_line import ShowText, parse_command_line
from klet.config.errors import ConfigError
from klet.config.files import DirectoryEntry
from klet.version import KUBELET_VERSION

LOOPBACK = "--address=127.0.0.1"
STANDALONE = {
    "authentication.webhook.enabled": False,
    "authentication.anonymous.enabled": True,
    "authorization.mode": "AlwaysAllow",
}


@pytest.fixture
def with_file(settle, as_document):
    """Settings of a standalone configuration file with these fields, and flags."""

    def with_file(fields, *argv, **more):
        files = {"/etc/k.yaml": as_document({**STANDALONE, **fields}), **more.pop("files", {})}
        return settle("--config=/etc/k.yaml", *argv, files=files, **more)

    return with_file


def drop_ins(as_document, *documents):
    return {f"/etc/k.d/{index}0.conf": as_document(fields) for index, fields in enumerate(documents, 1)}


def test_no_file_is_upstreams_flag_mode(settle):
    settings = settle(LOOPBACK)
    config = settings.config
    assert config.authentication.anonymous.enabled is True
    assert config.authentication.webhook.enabled is False
    assert config.authorization.mode == "AlwaysAllow"
    assert config.read_only_port == 10255
    assert config.eviction_hard == {}
    assert config.cgroup_root == "/"
    assert settings.flags.is_standalone
    assert [warning.partition(",")[0] for warning in settings.warnings] == ["Flag --address has been deprecated"]


def test_file_has_the_stricter_defaults(settle, as_document):
    files = {"/etc/k.yaml": as_document({}), "/etc/kubeconfig": "kind: Config\n"}
    config = settle("--config=/etc/k.yaml", "--kubeconfig=/etc/kubeconfig", files=files).config
    assert config.authentication.anonymous.enabled is False
    assert config.authentication.webhook.enabled is True
    assert config.authorization.mode == "Webhook"
    assert config.read_only_port == 0
    assert len(config.eviction_hard) == 5


def test_help_lists_the_flags(parse):
    shown = parse("--help")
    assert isinstance(shown, ShowText)
    assert "--max-pods int32" in shown.text


@pytest.mark.parametrize("argument", ["-h", "--help", "--help=true"])
def test_help_wins_over_version(parse, argument):
    assert "Usage:" in parse("--version", argument).text


def test_version(parse):
    assert parse("--version") == ShowText(f"Kubernetes {KUBELET_VERSION}\n")


def test_raw_version(parse):
    shown = parse("--version=raw").text
    assert shown.startswith("version.Info{")
    assert shown.endswith("}\n")
    assert KUBELET_VERSION in shown


def test_version_can_be_declined(settle):
    assert settle("--version=false", "--help=false", LOOPBACK).config.port == 10250


# Precedence: defaults, file, drop-ins, flags


def test_flag_wins_over_file(with_file):
    assert with_file({"maxPods": 5}, "--max-pods=7").config.max_pods == 7


def test_flag_can_set_a_real_zero(with_file):
    assert with_file({"maxPods": 5}, "--max-pods=0").config.max_pods == 0


def test_file_wins_over_flag_defaults(with_file):
    assert with_file({"readOnlyPort": 10256}).config.read_only_port == 10256


def test_drop_ins_win_over_the_file_and_flags_over_both(with_file, as_document):
    files = drop_ins(as_document, {"port": 8080}, {"readOnlyPort": 10255, "maxPods": 9})
    settings = with_file(
        {"maxPods": 5, "podsPerCore": 3},
        "--config-dir=/etc/k.d",
        "--port=8081",
        "--read-only-port=10256",
        files=files,
    )
    config = settings.config
    assert (config.port, config.read_only_port, config.max_pods, config.pods_per_core) == (8081, 10256, 9, 3)


def test_drop_ins_without_a_file_start_from_flag_mode(settle, as_document):
    config = settle("--config-dir=/etc/k.d", LOOPBACK, files=drop_ins(as_document, {"maxPods": 9})).config
    assert (config.max_pods, config.read_only_port, config.eviction_hard) == (9, 10255, {})
    assert config.authorization.mode == "AlwaysAllow"


def test_map_flag_replaces_the_map_of_the_file(with_file):
    config = with_file(
        {"kubeReserved": {"cpu": "1", "memory": "1Gi"}}, "--kube-reserved=pid=5", "--kube-reserved=cpu=2"
    )
    assert config.config.kube_reserved == {"pid": "5", "cpu": "2"}


def test_empty_map_flag_clears_the_map_of_the_file(with_file):
    assert with_file({}, "--eviction-hard=").config.eviction_hard == {}


def test_gates_of_file_drop_in_and_flag_merge(with_file, as_document):
    settings = with_file(
        {"featureGates": {"EventedPLEG": True, "MemoryQoS": True}},
        "--config-dir=/etc/k.d",
        "--feature-gates=MemoryQoS=false,KubeletPSI=false",
        files=drop_ins(as_document, {"featureGates": {"QOSReserved": True, "KubeletPSI": True}}),
    )
    assert settings.config.feature_gates == {
        "EventedPLEG": True,
        "MemoryQoS": False,
        "QOSReserved": True,
        "KubeletPSI": False,
    }
    assert settings.gates.enabled("EventedPLEG")
    assert settings.gates.enabled("QOSReserved")
    assert not settings.gates.enabled("MemoryQoS")
    assert not settings.gates.enabled("KubeletPSI")


def test_gate_of_a_flag_counts_for_the_defaults_of_the_file(with_file):
    settings = with_file({}, "--feature-gates=KubeletCrashLoopBackOffMax=false")
    assert settings.config.crash_loop_back_off.max_container_restart_period is None


@pytest.mark.parametrize(
    ("field", "argv", "expected"),
    [(False, (), False), (True, (), True), (False, ("--seccomp-default",), True),
     (True, ("--seccomp-default=false",), True)],
)  # fmt: skip
def test_seccomp_default_of_flag_or_file(with_file, field, argv, expected):
    assert with_file({"seccompDefault": field}, *argv).config.seccomp_default is expected


def test_relative_paths_start_at_the_working_directory(settle, as_document):
    files = {"/here/conf/k.yaml": as_document({**STANDALONE, "staticPodPath": "pods"})}
    assert settle("--config=conf/k.yaml", files=files).config.static_pod_path == "/here/conf/pods"


def test_warnings_are_collected_in_order(with_file):
    settings = with_file({"colour": "red", "featureGates": {"NodeSwap": True}}, "--max-pods=5", "--v=3")
    deprecated, lenient, gate = settings.warnings
    assert deprecated.startswith("Flag --max-pods has been deprecated, ")
    assert 'unknown field "colour"' in lenient
    assert gate == "Setting GA feature gate NodeSwap=true. It will be removed in a future release."


@pytest.mark.parametrize(
    ("own", "reserved", "count"),
    [("/kube/klet", "/kube", 0), ("/other", "/kube", 1), ("/other", "", 0), ("", "/kube", 0)],
)
def test_own_cgroup_outside_of_the_reserved_one_is_reported(with_file, own, reserved, count):
    settings = with_file({"kubeletCgroups": own, "kubeReservedCgroup": reserved})
    expected = "unsupported configuration:KubeletCgroups is not within KubeReservedCgroup"
    assert settings.warnings == (expected,) * count


# klet's own settings


def test_klet_defaults_follow_the_root_directory(settle):
    settings = settle("--root-dir=/srv/k/", LOOPBACK)
    assert settings.klet.socket == "/srv/k/klet.sock"
    assert (settings.klet.journal_records, settings.klet.max_parallel_starts) == (20000, 0)


def test_klet_flags_win_over_the_klet_file(settle):
    files = {"/here/klet.yaml": "kind: KletConfiguration\napiVersion: klet.dev/v1alpha1\njournalRecords: 5\n"
             "socket: /run/a.sock\n"}  # fmt: skip
    settings = settle("--klet-config=klet.yaml", "--klet-socket=/run/b.sock", LOOPBACK, files=files)
    assert (settings.klet.socket, settings.klet.journal_records) == ("/run/b.sock", 5)


# Mistakes, one clear message each, in the order of upstream's steps

FILE = (
    "failed to load kubelet config file, path: /etc/k.yaml, error: "
    "failed to load Kubelet config file /etc/k.yaml, error"
)
GATES = "failed to set feature gates from initial flags-based config: "
WALK = 'failed to merge kubelet configs: failed to walk through kubelet dropin directory "/etc/k.d": '


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        pytest.param(["--nope", "--help"], "failed to parse kubelet flag: unknown flag: --nope",
                     id="a bad flag comes before help"),
        pytest.param(["start", "stop", "--help"], "unknown command start", id="only the first word is named"),
        pytest.param(["--feature-gates=Nope=true,A=true"], f"{GATES}"
                     "[unrecognized feature gate: A, unrecognized feature gate: Nope]", id="unknown gates"),
        pytest.param(["--feature-gates=NodeSwap=false"], f"{GATES}"
                     "cannot set feature gate NodeSwap to false, feature is locked to true", id="a locked gate"),
        pytest.param(["--node-labels=k8s.io/a=b", "--config=/none"], "failed to validate kubelet flags: unknown "
                     "'kubernetes.io' or 'k8s.io' labels specified with --node-labels: [k8s.io/a]\n--node-labels in",
                     id="labels come before files"),
        pytest.param(["--config=/etc/k.yaml"], f'{FILE} failed to read kubelet config file "/etc/k.yaml", error: open '
                     "/etc/k.yaml: no such file or directory", id="no such file"),
        pytest.param(["--config-dir=/etc/k.d"], f"{WALK}lstat /etc/k.d: no such file or directory",
                     id="no such directory"),
        pytest.param(["--logging-format=xml", "--port=0"], "initialize logging: logging.format: Invalid value: "
                     '"xml": Unsupported log format', id="logging comes before the rest"),
        pytest.param(["--port=0"], "failed to validate kubelet configuration, error: invalid configuration: port "
                     "(--port) 0 must be between 1 and 65535, inclusive, path: command line", id="one broken rule"),
        pytest.param(["--port=0", "--max-pods=-1"], "failed to validate kubelet configuration, error: [invalid "
                     "configuration: maxPods (--max-pods) -1 must not be a negative number, invalid configuration: "
                     "port (--port) 0 must be between 1 and 65535, inclusive], path: command line",
                     id="two broken rules"),
        pytest.param(["--container-runtime-endpoint="], "failed to validate kubelet configuration, error: invalid "
                     "configuration: the containerRuntimeEndpoint was not specified or empty, path: command line",
                     id="no runtime"),
        pytest.param(["--klet-config=k.yaml"], "failed to load klet config file, path: /here/k.yaml, error: open "
                     "/here/k.yaml: no such file or directory", id="no klet file"),
    ],
)  # fmt: skip
def test_mistake(parse, argv, message):
    with pytest.raises(ConfigError) as caught:
        parse(*argv)
    assert str(caught.value).startswith(message)


def test_empty_drop_in(parse):
    with pytest.raises(ConfigError) as caught:
        parse("--config-dir=/etc/k.d", files={"/etc/k.d/a.conf": ""})
    assert str(caught.value) == (
        f"{WALK}failed to load kubelet dropin file, path: /etc/k.d/a.conf, error: failed to load drop-in kubelet "
        'config file /etc/k.d/a.conf, error kubelet config file "/etc/k.d/a.conf" was empty'
    )


def test_drop_in_that_cannot_be_read():
    def refuse(path):
        raise PermissionError(13, "Permission denied", path)

    def list_one(path):
        return (DirectoryEntry("a.conf", is_directory=False),)

    with pytest.raises(ConfigError) as caught:
        parse_command_line(["--config-dir=/etc/k.d"], read_file=refuse, list_dir=list_one)
    assert str(caught.value) == (
        f"{WALK}failed to load kubelet dropin file, path: /etc/k.d/a.conf, error: failed to load drop-in kubelet "
        'config file /etc/k.d/a.conf, error failed to read drop-in kubelet config file "/etc/k.d/a.conf", error: open '
        "/etc/k.d/a.conf: permission denied"
    )


def test_no_qos_cgroups_leave_the_cgroup_root_alone(settle):
    config = settle("--cgroups-per-qos=false", "--enforce-node-allocatable=none", LOOPBACK).config
    assert config.cgroup_root == ""


def test_broken_rule_of_a_file_names_its_sources(parse, as_document):
    files = {"/etc/k.yaml": as_document({"port": -1}), "/etc/k.d/a.conf": as_document({})}
    with pytest.raises(ConfigError, match=r"inclusive, path: /etc/k.yaml, /etc/k.d/\*.conf$"):
        parse("--config=/etc/k.yaml", "--config-dir=/etc/k.d", files=files)


def test_broken_rule_names_the_command_line_if_it_says_anything(parse, as_document):
    files = {"/etc/k.yaml": as_document({})}
    with pytest.raises(ConfigError, match=r"inclusive, path: /etc/k.yaml, command line$"):
        parse("--config=/etc/k.yaml", "--port=0", files=files)


def test_drop_in_that_breaks_a_derived_default(parse, as_document):
    files = {"/etc/k.yaml": as_document(STANDALONE), "/etc/k.d/a.conf": as_document({"maxParallelImagePulls": 4})}
    with pytest.raises(ConfigError, match="maxParallelImagePulls cannot be larger than 1"):
        parse("--config=/etc/k.yaml", "--config-dir=/etc/k.d", files=files)


def test_cgroup_v1_is_refused_unless_asked_for(parse, settle):
    with pytest.raises(ConfigError, match="configured to not run on a host using cgroup v1"):
        parse(cgroup_v1=True)
    assert settle("--fail-cgroupv1=false", LOOPBACK, cgroup_v1=True).config.fail_cgroup_v1 is False


@pytest.mark.parametrize(
    ("argv", "files"),
    [
        pytest.param(["--max-pods=-1"], {}, id="a rule of the configuration"),
        pytest.param(["--config-dir=/etc/k.d"], {"/etc/k.d/10.conf": "{"}, id="a drop-in that cannot be read"),
        pytest.param(["--klet-config=/none"], {}, id="klet's own file is not there"),
    ],
)
def test_a_refusal_has_the_warnings_that_came_before(with_file, argv, files):
    with pytest.raises(ConfigError) as refused:
        with_file({"maxPodz": 7}, "--cluster-dns=10.0.0.1", *argv, files=files)
    deprecated, unknown = refused.value.warnings[0], refused.value.warnings[-1]
    assert "--cluster-dns has been deprecated" in deprecated
    assert 'unknown field "maxPodz"' in unknown


def test_flags_are_listed_for_flagz_with_its_gate_alone(settle, standalone, as_document):
    files = {"/k.yaml": as_document({**standalone, "featureGates": {"ComponentFlagz": True}, "maxPods": 7})}
    given = ("--config=/k.yaml", "--v=3", "--manifest-url-header=X-Token:hunter2", "--hostname-override=n")
    shown = settle(*given, files=files).flagz
    assert (shown["v"], shown["config"], shown["hostname-override"]) == ("3", "/k.yaml", "n")
    # As upstream: what the file sets is not a flag's value.
    assert (shown["max-pods"], shown["register-node"], shown["lock-file"]) == ("110", "true", "")
    assert "hunter2" not in str(shown)
    files = {"/k.yaml": as_document({**standalone})}
    assert settle("--config=/k.yaml", files=files).flagz == {}
