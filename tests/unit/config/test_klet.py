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


def test_defaults():
    assert finish(load("")) == KletConfiguration(socket="/root/klet.sock", journal_records=20000, max_parallel_starts=0)


def test_a_relative_socket_starts_at_the_root_directory():
    assert finish(load("socket: run/a.sock\n")).socket == "/root/run/a.sock"


def test_flags_win():
    config = finish(load("journalRecords: 5\n"), klet_journal_records=7, klet_max_parallel_starts=2, klet_socket="/s")
    assert config == KletConfiguration(socket="/s", journal_records=7, max_parallel_starts=2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("colour: red\n", 'strict decoding error: unknown field "colour"'),
        ("journalRecord: 1\n", 'strict decoding error: unknown field "journalRecord" (did you mean "journalRecords"?)'),
        ("socket: 1\n", 'field "socket": expected a string, got a number'),
        ("maxParallelStarts: 1\nmaxParallelStarts: 2\n", 'strict decoding error: duplicate field "maxParallelStarts"'),
        ("maxPods: 1\n", 'strict decoding error: unknown field "maxPods"'),
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
    ],
)
def test_rules(config, message):
    with pytest.raises(ConfigError) as caught:
        finish(config)
    assert str(caught.value).startswith(message)
