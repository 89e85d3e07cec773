"""What the parts get of the configuration."""

from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace
from msgspec.structs import replace as change

from klet.admission.declared_features import POD_RESIZE, RESTART_ALL
from klet.agent_log.start import LogSettings
from klet.agent_log.vmodule import VModuleRule
from klet.app.metrics import open_metrics
from klet.app.settings import (
    LONGEST_REQUEST,
    STARTS_PER_CPU,
    check_settings,
    choose_legacy_logs,
    cut_container_rules,
    cut_log_settings,
    cut_pod_cgroup_rules,
    cut_qos_rules,
    cut_settings,
    cut_validation_options,
)
from klet.config.command_line import Settings, parse_command_line
from klet.config.errors import ConfigError
from klet.config.gates import resolve_gates
from klet.config.sections import MemorySwap
from klet.config.without_effect import GATES
from klet.host.machine.info import MachineInfo
from klet.images.pulled.verification import build_rules
from klet.images.settings import ImageSettings, RecordLimits
from klet.metrics import Deprecation, Promise
from klet.model.stats import SystemCgroups
from klet.node.capacity import expect_allocatable
from klet.resources.cgroup_values import PodCgroupRules, QosRules
from klet.runtime.config.id_blocks import UserIdSettings
from klet.runtime.config.linux_resources import MemoryQosRules, ResourceRules, SwapRules
from klet.stats.collector import StatsSettings
from klet.testing.machines import SMALL, list_cpus

MACHINE = MachineInfo(hostname="Node", cpus=4, agent_cpus=2, memory=1 << 30)
GIB = 1 << 30
V2 = MachineInfo(
    hostname="node", cpus=2, memory=8 * GIB, swap=2 * GIB, hugepages={2 << 20: 0}, has_swap_controller=True
)
V1 = MachineInfo(hostname="node", cpus=2, memory=8 * GIB, cgroup_version=1)


@pytest.mark.parametrize(
    ("logs", "expected"),
    [
        pytest.param("/var/log/pods", "/var/log/containers", id="where upstream has it"),
        pytest.param("/tmp/node/logs", "/tmp/node/containers", id="beside the logs of a node that has them elsewhere"),
    ],
)
def test_links_to_logs(logs, expected):
    assert choose_legacy_logs(Path(logs)) == Path(expected)


def given(*arguments: str) -> Settings:
    def missing(path: str):
        raise FileNotFoundError(path)

    parsed = parse_command_line(("--address=127.0.0.1", *arguments), read_file=missing, list_dir=missing)
    assert isinstance(parsed, Settings)
    return parsed


def cut(*arguments: str):
    return cut_settings(given(*arguments), MACHINE)


DECLARES = "--feature-gates=NodeDeclaredFeatures=true"


@pytest.mark.parametrize(
    ("arguments", "declared"),
    [
        pytest.param([], None, id="the gate is off"),
        pytest.param([DECLARES], (), id="no CPU manager: klet resizes nothing yet"),
        pytest.param([f"{DECLARES},ContainerStopSignals=true"], (), id="another gate"),
        pytest.param([f"{DECLARES},{RESTART_ALL}=true"], (RESTART_ALL,), id="a gate of a feature"),
        pytest.param([DECLARES, "--cpu-manager-policy=static", "--kube-reserved=cpu=1"], (), id="exclusive CPUs"),
    ],
)
def test_features_that_a_node_declares(arguments, declared):
    machine = replace(MACHINE, topology=list_cpus(SMALL))
    assert cut_settings(given(*arguments), machine).declared_features == declared


def test_a_feature_whose_gate_klet_does_not_act_upon_is_not_declared():
    gates = f"{DECLARES}," + ",".join(f"{name}=true" for name in (RESTART_ALL, POD_RESIZE))
    declared = cut(gates).declared_features
    assert {RESTART_ALL, POD_RESIZE} - set(declared) == {RESTART_ALL, POD_RESIZE} & GATES


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param(
            [],
            {("127.0.0.1", 10250), ("127.0.0.1", 10255), ("127.0.0.1", 10248)},
            id="the API, the read-only port of a node without a file, and health",
        ),
        pytest.param(["--read-only-port=0", "--healthz-port=0"], {("127.0.0.1", 10250)}, id="the API alone"),
        pytest.param(
            ["--enable-server=false", "--read-only-port=0", "--healthz-bind-address=::"],
            {("", 10248)},
            id="all addresses, and no API",
        ),
    ],
)
def test_ports_that_no_pod_may_have(arguments, expected):
    assert {(each.host_ip, each.host_port) for each in cut(*arguments).own_ports} == expected


def test_name_servers_that_are_none_are_left_out():
    assert cut("--cluster-dns=010.96.0.10,junk").dns.cluster_dns == ("10.96.0.10",)


def test_a_deadline_that_grpc_would_take_for_the_past_is_cut():
    assert cut("--runtime-request-timeout=2562047h").request_timeout == LONGEST_REQUEST
    assert cut("--runtime-request-timeout=3m").request_timeout == timedelta(minutes=3)


@pytest.mark.parametrize(
    ("gates", "first", "longest"),
    [
        pytest.param("", 10, 300, id="upstream's defaults"),
        pytest.param("ReduceDefaultCrashLoopBackOffDecay=true", 1, 300, id="the field's own default goes first"),
        pytest.param("ReduceDefaultCrashLoopBackOffDecay=true,KubeletCrashLoopBackOffMax=false", 1, 60,
                     id="without the field, the reduced maximum"),
    ],
)  # fmt: skip
def test_the_delays_of_crash_loops_go_by_two_gates(gates, first, longest):
    document = b"{apiVersion: kubelet.config.k8s.io/v1beta1, kind: KubeletConfiguration, address: 127.0.0.1}"
    alone = ("--authentication-token-webhook=false", "--anonymous-auth=true", "--authorization-mode=AlwaysAllow")
    arguments = ("--config=/k.yaml", f"--feature-gates={gates}", *alone)
    parsed = parse_command_line(arguments, read_file=lambda _path: document, list_dir=lambda _path: [])
    assert isinstance(parsed, Settings)
    limits = cut_settings(parsed, MACHINE).crash_backoff
    assert (limits.first.total_seconds(), limits.longest.total_seconds()) == (first, longest)


def test_gates_that_take_a_kind_of_pod_or_volume_away():
    usual, without = cut(), cut("--feature-gates=ImageVolume=false,PodLevelResources=false")
    assert (usual.has_image_volumes, usual.has_pod_level_resources) == (True, True)
    assert (without.has_image_volumes, without.has_pod_level_resources) == (False, False)


def test_gates_that_take_something_from_statuses_away():
    usual = cut()
    gates = "DisableNodeKubeProxyVersion=false,PodReadyToStartContainersCondition=false"
    without = cut(f"--feature-gates={gates}")
    assert (usual.node.shows_proxy_version, usual.features.ready_to_start) == (False, True)
    assert (without.node.shows_proxy_version, without.features.ready_to_start) == (True, False)


@pytest.mark.parametrize(
    ("gates", "restart_rules", "host_network"),
    [
        pytest.param("", True, False, id="by default"),
        pytest.param("ContainerRestartRules=false", False, False, id="no restart rules"),
        pytest.param("UserNamespacesHostNetworkSupport=true", True, True, id="user namespaces in the host's network"),
    ],
)
def test_rules_for_static_pods_go_by_gates(gates, restart_rules, host_network):
    options = cut_validation_options(given(f"--feature-gates={gates}"))
    assert not options.resource_is_pod
    assert options.container_restart_rules is restart_rules
    assert options.user_namespaces_host_network is host_network


def test_what_other_gates_allow_static_pods_to_use():
    usual = cut_validation_options(given())
    assert (usual.restart_all_containers, usual.taint_comparisons) == (False, False)
    gates = (
        "RestartAllContainersOnContainerExits=true,NodeDeclaredFeatures=true,TaintTolerationComparisonOperators=true"
    )
    allowed = cut_validation_options(given(f"--feature-gates={gates}"))
    assert (allowed.restart_all_containers, allowed.taint_comparisons) == (True, True)


def test_starts_in_flight_go_by_the_cpus_that_the_agent_may_use():
    assert cut().parallel_starts == 2 * STARTS_PER_CPU
    assert cut("--klet-max-parallel-starts=3").parallel_starts == 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["--reserved-cpus=0-3", "--fail-swap-on=false"], None, id="CPUs that nobody can count"),
        pytest.param(["--cgroup-root=/a/"], None, id="a slash at the end of a path"),
        pytest.param(["--cgroups-per-qos=false", "--enforce-node-allocatable=none"], None, id="no cgroups"),
        pytest.param(["--kube-reserved=cpu=5"], "invalid Node Allocatable configuration", id="less than is reserved"),
        pytest.param(["--cgroup-root=/a_b"], 'cgroupRoot (--cgroup-root) "/a_b": invalid character in '
                     'component ["a_b"] of CgroupName', id="a cgroup that cannot be named"),
        pytest.param(["--cgroup-root=/a/", "--cgroup-driver=systemd"], 'cgroupRoot (--cgroup-root) "/a/": invalid '
                     "slice name", id="a slice that cannot be named"),
        pytest.param(["--max-pods=70000"], "maxPods (--max-pods) 70000 with userNamespaces.idsPerPod: 4294901760 ids "
                     "are too few for 70000 pods of 65536 each", id="more pods than ids"),
    ],
)  # fmt: skip
def test_what_the_machine_cannot_keep(arguments, message):
    if message is None:
        check_settings(given(*arguments), MACHINE)
        return
    with pytest.raises(ConfigError) as caught:
        check_settings(given(*arguments), MACHINE)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("arguments", "servers"),
    [
        pytest.param((), (), id="none given"),
        pytest.param(("--node-ip=2001:db8::1,192.0.2.1",), ("2001:db8::1", "192.0.2.1"), id="one of each family"),
    ],
)
def test_pods_without_a_resolver_ask_the_node_in_its_families(arguments, servers):
    assert cut(*arguments).dns.node_ips == servers


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param([], StatsSettings(max_age=timedelta(seconds=10)), id="defaults"),
        pytest.param(["--housekeeping-interval=1m"], StatsSettings(max_age=timedelta(minutes=1)), id="an interval"),
        pytest.param(["--runtime-cgroups=/r", "--kubelet-cgroups=/k", "--feature-gates=KubeletPSI=false"],
                     StatsSettings(system=SystemCgroups(runtime="/r", kubelet="/k"), has_pressure=False),
                     id="names of cgroups, and no pressure"),
    ],
)  # fmt: skip
def test_what_is_measured(arguments, expected):
    assert cut(*arguments).stats == expected


def test_the_gate_of_images_for_each_handler():
    assert not cut().sandbox.names_image_handlers
    assert cut("--feature-gates=RuntimeClassInImageCriApi=true").sandbox.names_image_handlers


def left_for_pods(given: Settings, machine: MachineInfo) -> dict[str, str]:
    node = cut_settings(given, machine).node
    left = expect_allocatable(machine, storage=100 * GIB, settings=node)
    return {name: str(amount) for name, amount in left.items()}


def settings(*arguments: str, **changes) -> Settings:
    """Settings by flags, and by fields of the configuration that have no flag."""

    def missing(path: str):
        raise FileNotFoundError(path)

    parsed = parse_command_line(("--address=127.0.0.1", *arguments), read_file=missing, list_dir=missing)
    assert isinstance(parsed, Settings)
    return change(parsed, config=replace(parsed.config, **changes))


MEMORY_QOS = "--feature-gates=MemoryQoS=true"


def test_defaults_on_version_2():
    assert cut_container_rules(settings(), V2) == ResourceRules(
        is_unified=True,
        memory_capacity=8 * GIB,
        hugepage_sizes=(2 << 20,),
        kills_whole_container=True,
        swap=SwapRules(capacity=2 * GIB),
    )
    assert cut_pod_cgroup_rules(settings(), V2) == PodCgroupRules()
    assert cut_qos_rules(settings(), V2) == QosRules(hugepage_sizes=(2 << 20,), allocatable_memory=8 * GIB)


def test_defaults_on_version_1():
    assert cut_container_rules(settings(), V1) == ResourceRules(memory_capacity=8 * GIB)
    assert not cut_container_rules(settings(MEMORY_QOS), V1).memory_qos
    assert not cut_pod_cgroup_rules(settings(MEMORY_QOS), V1).memory_qos


def test_one_process_may_die_alone():
    assert not cut_container_rules(settings(single_process_oom_kill=True), V2).kills_whole_container
    assert cut_container_rules(settings(single_process_oom_kill=False), V2).kills_whole_container


@pytest.mark.parametrize(("behavior", "expected"), [("", False), ("NoSwap", False), ("LimitedSwap", True)])
def test_swap(behavior, expected):
    rules = cut_container_rules(settings(memory_swap=MemorySwap(swap_behavior=behavior)), V2)
    assert rules.swap == SwapRules(is_limited=expected, capacity=2 * GIB)


def test_memory_quality_of_service():
    given = settings(MEMORY_QOS, "--kube-reserved=memory=1Gi", "--system-reserved=memory=2Gi")
    rules = MemoryQosRules(throttling_factor=0.9, allocatable=5 * GIB)
    assert cut_container_rules(given, V2).memory_qos == rules
    assert cut_pod_cgroup_rules(given, V2).memory_qos
    assert cut_qos_rules(given, V2) == QosRules(hugepage_sizes=(2 << 20,), memory_qos=True, allocatable_memory=5 * GIB)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param((), None, id="nothing is reserved by default"),
        pytest.param(
            ("--feature-gates=QOSReserved=true", "--qos-reserved=memory=50%"), 50, id="a part of what is requested"
        ),
    ],
)
def test_reservations(arguments, expected):
    assert cut_qos_rules(settings(*arguments), V2).reserved_percent == expected


def test_limits_by_flag():
    rules = cut_pod_cgroup_rules(settings("--pod-max-pids=100", "--cpu-cfs-quota=false"), V2)
    assert (rules.pids_limit, rules.cpu_quota) == (100, False)
    assert not cut_container_rules(settings("--cpu-cfs-quota=false"), V2).cpu_quota


def test_a_period_of_its_own():
    given = settings("--feature-gates=CustomCPUCFSQuotaPeriod=true", "--cpu-cfs-quota-period=5ms")
    assert cut_pod_cgroup_rules(given, V2).cpu_period == cut_container_rules(given, V2).cpu_period == 5000


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param(
            (),
            {"cpu": "2", "memory": "8Gi", "pods": "110", "ephemeral-storage": "100Gi"},
            id="the whole machine",
        ),
        pytest.param(
            ("--eviction-hard=memory.available<100Mi,nodefs.available<10%",),
            {"cpu": "2", "memory": "8092Mi", "pods": "110", "ephemeral-storage": "96636764000"},
            id="less what the hard thresholds keep free",
        ),
        pytest.param(
            ("--eviction-hard=memory.available<100Mi", "--experimental-allocatable-ignore-eviction"),
            {"cpu": "2", "memory": "8Gi", "pods": "110", "ephemeral-storage": "100Gi"},
            id="unless thresholds are to be ignored",
        ),
        pytest.param(
            ("--system-reserved=cpu=500m,memory=1Gi", "--kube-reserved=cpu=250m,ephemeral-storage=1Gi"),
            {"cpu": "1250m", "memory": "7Gi", "pods": "110", "ephemeral-storage": "99Gi"},
            id="less what is reserved",
        ),
        pytest.param(
            ("--kube-reserved=cpu=3", "--max-pods=7"),
            {"cpu": "0", "memory": "8Gi", "pods": "7", "ephemeral-storage": "100Gi"},
            id="never less than nothing",
        ),
        pytest.param(
            ("--pods-per-core=3", "--local-storage-capacity-isolation=false"),
            {"cpu": "2", "memory": "8Gi", "pods": "6"},
            id="so many pods for each CPU, and no storage",
        ),
    ],
)
def test_what_is_left_for_pods(arguments, expected):
    left = left_for_pods(settings(*arguments), V2)
    assert {name: text for name, text in left.items() if not name.startswith("hugepages")} == expected


def test_huge_pages_are_no_other_memory():
    left = left_for_pods(settings(), replace(V2, hugepages={2 << 20: 512}))
    assert (left["memory"], left["hugepages-2Mi"]) == ("7Gi", "1Gi")


def test_pods_get_all_cpus_of_the_machine_though_the_agent_runs_on_few():
    assert left_for_pods(settings(), replace(V2, cpus=4, agent_cpus=2))["cpu"] == "4"


def test_users_of_their_own():
    ids = cut_settings(
        settings("--max-pods=50", "--feature-gates=UserNamespacesSupport=false,ProcMountType=false"), V2
    ).user_ids
    assert ids == UserIdSettings(per_pod=65536, max_pods=50, is_enabled=False)


def test_reserved_cpus_stand_in_for_both_amounts():
    given = settings("--reserved-cpus=0", "--kube-reserved=cpu=500m,memory=1Gi", "--system-reserved=cpu=700m")
    left = left_for_pods(given, V2)
    assert (left["cpu"], left["memory"]) == ("1", "7Gi")


ALPHA = "--feature-gates=LoggingAlphaOptions=true"
STREAMS = ("--log-text-split-stream", "--log-text-info-buffer-size=2Ki", "--log-json-info-buffer-size=3Ki")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param([], LogSettings(), id="the defaults"),
        pytest.param(["-v=3"], LogSettings(verbosity=3), id="verbosity"),
        pytest.param(["--vmodule=pleg=4,sync/*=5"],
                     LogSettings(vmodule=(VModuleRule("pleg", 4), VModuleRule("sync/*", 5))), id="by module"),
        pytest.param(["--log-flush-frequency=1m"], LogSettings(flush_seconds=60.0), id="flushes"),
        pytest.param([ALPHA, *STREAMS], LogSettings(is_split=True, info_buffer=2048), id="the streams of text"),
        pytest.param([ALPHA, *STREAMS, "--logging-format=json"], LogSettings(as_json=True, info_buffer=3072),
                     id="the streams of JSON"),
    ],
)  # fmt: skip
def test_how_the_agent_logs(arguments, expected):
    assert cut_log_settings(given(*arguments).config) == expected


@pytest.mark.parametrize(("version", "is_shown"), [("", False), ("1.34", True)])
def test_hidden_metrics_are_shown_for_the_previous_version(version, is_shown):
    settings = given()
    config = replace(settings.config, show_hidden_metrics_for_version=version)
    cut = cut_settings(replace(settings, config=config), MACHINE)
    metrics = open_metrics(architecture="amd64", shows_hidden=cut.shows_hidden_metrics).agent
    metrics.counter("old_total", "Old.", promise=Promise(deprecation=Deprecation("1.34.0")))
    assert (b"old_total 0" in metrics.write()) is is_shown


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param((), ImageSettings(
            at_once=1, pull_qps=5, pull_burst=10, rules=build_rules("NeverVerifyPreloadedImages", ()),
            limits=RecordLimits(220, 550),
        ), id="upstream's defaults"),
        pytest.param(("--serialize-image-pulls=false", "--registry-qps=0", "--registry-burst=3", "--max-pods=10"),
                     ImageSettings(pull_burst=3, rules=build_rules("NeverVerifyPreloadedImages", ()),
                                   limits=RecordLimits(20, 50)), id="any number of pulls"),
    ],
)  # fmt: skip
def test_how_images_are_pulled(arguments, expected):
    assert cut_settings(given(*arguments), MACHINE).images == expected


def test_without_the_gate_nobody_is_asked_for_credentials():
    settings = replace(given(), gates=resolve_gates({"KubeletEnsureSecretPulledImages": False}))
    assert cut_settings(settings, MACHINE).images.rules is None
