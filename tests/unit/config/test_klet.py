from datetime import timedelta

import pytest

from klet.config.errors import ConfigError
from klet.config.flagset import ParsedFlags
from klet.config.klet import KletConfiguration, finish_klet_configuration, load_klet_configuration

HEAD = "kind: KletConfiguration\napiVersion: klet.dev/v1alpha1\n"


def load(text):
    return load_klet_configuration("/k.yaml", f"{HEAD}{text}".encode())


def finish(config, **flags):
    values = {name.replace("_", "-"): value for name, value in flags.items()}
    return finish_klet_configuration(config, ParsedFlags(values), root_dir="/root")


def test_every_field_is_read():
    assert load("socket: /s\njournalRecords: 5\nmaxParallelStarts: 3\n") == KletConfiguration(
        socket="/s", journal_records=5, max_parallel_starts=3
    )


RUNTIME_CLASSES = """
runtimeClasses:
- apiVersion: node.k8s.io/v1
  kind: RuntimeClass
  metadata:
    name: quick
    creationTimestamp: null
    managedFields: [{manager: kubectl, operation: Update, fieldsV1: {"f:handler": {}}}]
  handler: crun
  overhead: {podFixed: {cpu: 10m, memory: 4Mi}}
  scheduling:
    nodeSelector: {kind: big}
    tolerations: [{key: big, operator: Exists, effect: NoExecute, tolerationSeconds: 5}]
- metadata: {name: plain}
  handler: runc
"""


def test_runtime_classes_are_read_as_kubectl_prints_them():
    quick, plain = load(RUNTIME_CLASSES).runtime_classes
    assert (quick.metadata.name, quick.handler) == ("quick", "crun")
    assert {name: str(amount) for name, amount in quick.overhead.pod_fixed.items()} == {"cpu": "10m", "memory": "4Mi"}
    assert quick.scheduling.tolerations[0].toleration_seconds == 5
    assert (plain.metadata.name, plain.handler, plain.overhead) == ("plain", "runc", None)


def test_defaults():
    assert finish(load("")) == KletConfiguration(
        socket="/root/klet.sock", journal_records=20000, max_parallel_starts=0, offline_after=timedelta(seconds=10)
    )


def test_a_relative_socket_starts_at_the_root_directory():
    assert finish(load("socket: run/a.sock\n")).socket == "/root/run/a.sock"


def test_flags_win():
    config = finish(load("journalRecords: 5\n"), klet_journal_records=7, klet_max_parallel_starts=2, klet_socket="/s")
    assert config == KletConfiguration(
        socket="/s", journal_records=7, max_parallel_starts=2, offline_after=timedelta(seconds=10)
    )


def test_switches_are_off_and_can_be_turned_on():
    config = finish(load(""))
    assert (config.bridge_network, config.leave_kernel_tunables) == (False, False)
    config = finish(load("bridgeNetwork: true\n"), klet_leave_kernel_tunables=True)
    assert (config.bridge_network, config.leave_kernel_tunables) == (True, True)


def test_what_is_done_without_an_api_server_is_off_and_can_be_turned_on():
    config = finish(load("offline: true\nofflineAfter: 3s\n"))
    assert (config.offline, config.offline_after) == (True, timedelta(seconds=3))
    config = finish(load("offlineAfter: 3s\n"), klet_offline=True, klet_offline_after=timedelta(minutes=1))
    assert (config.offline, config.offline_after) == (True, timedelta(minutes=1))
    assert not finish(load("")).offline


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("colour: red\n", 'strict decoding error: unknown field "colour"'),
        ("journalRecord: 1\n", 'strict decoding error: unknown field "journalRecord" (did you mean "journalRecords"?)'),
        ("socket: 1\n", 'field "socket": expected a string, got a number'),
        ("maxParallelStarts: 1\nmaxParallelStarts: 2\n", 'strict decoding error: duplicate field "maxParallelStarts"'),
        ("maxPods: 1\n", 'strict decoding error: unknown field "maxPods"'),
        ("runtimeClasses: crun\n", 'field "runtimeClasses": expected a list, got a string'),
        ("runtimeClasses: [{handler: 1}]\n", 'field "runtimeClasses[0].handler": expected a string, got a number'),
        (
            "runtimeClasses: [{handlers: crun}]\n",
            'strict decoding error: unknown field "runtimeClasses[0].handlers"',
        ),
        (
            "runtimeClasses:\n- {metadata: {name: a}, handler: a}\n- {metadata: {name: a}, handler: b.c}\n",
            (
                '[runtimeClasses[1].handler: Invalid value: "b.c": must not contain dots, '
                'runtimeClasses[1].metadata.name: Duplicate value: "a"]'
            ),
        ),
        (
            "runtimeClasses:\n- {apiVersion: v1, kind: Pod, metadata: {name: a}, handler: a}\n",
            (
                '[runtimeClasses[0].apiVersion: Unsupported value: "v1": supported values: "node.k8s.io/v1", '
                'runtimeClasses[0].kind: Unsupported value: "Pod": supported values: "RuntimeClass"]'
            ),
        ),
        (
            "runtimeClasses:\n- {metadata: {name: a}, handler: a, overhead: {podFixed: {cpu: lots}}}\n",
            (
                'field "runtimeClasses[0].overhead.podFixed.cpu": quantities must match the regular expression '
                "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            ),
        ),
    ],
)
def test_mistakes_are_strict(text, message):
    with pytest.raises(ConfigError) as caught:
        load(text)
    assert str(caught.value) == f"failed to load klet config file, path: /k.yaml, error: {message}"


def test_another_kind():
    with pytest.raises(ConfigError, match=r"write kind: KletConfiguration, apiVersion: klet\.dev/v1alpha1"):
        load_klet_configuration("/k.yaml", b"kind: KubeletConfiguration\napiVersion: kubelet.config.k8s.io/v1beta1\n")


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (KletConfiguration(journal_records=-1), "journalRecords (--klet-journal-records) -1 must be greater than 0"),
        (KletConfiguration(max_parallel_starts=-1), "maxParallelStarts (--klet-max-parallel-starts) -1 must not be"),
        (KletConfiguration(offline_after=-timedelta(1)), "offlineAfter (--klet-offline-after) must not be negative"),
    ],
)
def test_rules(config, message):
    with pytest.raises(ConfigError) as caught:
        finish(config)
    assert str(caught.value).startswith(message)
