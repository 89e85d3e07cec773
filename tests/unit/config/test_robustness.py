"""Whatever the text, a mistake is a ConfigError and nothing else."""

import contextlib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from klet.config import flagvalues
from klet.config.command_line import Settings, ShowText, parse_command_line
from klet.config.document import parse_document
from klet.config.errors import ConfigError
from klet.config.files import load_configuration
from klet.config.help import ALL_FLAGS

KINDS = sorted({flag.kind.name: flag.kind for flag in ALL_FLAGS}.items())
HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
FIELDS = st.sampled_from(
    ["port", "syncFrequency", "clusterDNS", "kubeReserved", "authentication", "reservedMemory", "featureGates",
     "registerWithTaints", "memoryThrottlingFactor", "logging", "evictionHard", "enableServer", "tracing"]
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
NUMBERS = st.text("0123456789xXoObB_+-.eE%kMGi", max_size=12)


@given(st.text(max_size=60))
def test_any_text_is_a_document_or_a_mistake(text):
    with contextlib.suppress(ConfigError):
        parse_document(text.encode("utf-8", "surrogatepass"))


@given(st.binary(max_size=40))
def test_any_bytes_are_a_document_or_a_mistake(content):
    with contextlib.suppress(ConfigError):
        parse_document(content)


@given(NUMBERS)
def test_any_number_is_a_scalar(text):
    with contextlib.suppress(ConfigError):
        parse_document(f"a: {text}\n".encode())


@given(FIELDS, VALUES)
def test_any_value_of_a_field_loads_or_is_a_mistake(field, value):
    content = f"{HEAD}{field}: {flow(value)}\n".encode("utf-8", "surrogatepass")
    with contextlib.suppress(ConfigError):
        load_configuration("/k.yaml", content, flag_gates={})


def flow(value):
    """YAML in flow style, with every text in quotes."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{flow(key)}: {flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return json.dumps(value)


@pytest.mark.parametrize(("name", "kind"), KINDS, ids=lambda item: item if isinstance(item, str) else "")
@settings(max_examples=60)
@given(text=st.text(max_size=12) | NUMBERS)
def test_any_text_is_a_flag_value_or_a_mistake(name, kind, text):
    with contextlib.suppress(ConfigError):
        kind.parse(text, None)


@settings(max_examples=60)
@given(st.lists(st.sampled_from([f"--{flag.name}" for flag in ALL_FLAGS]) | st.text(max_size=8), max_size=4))
def test_any_command_line_is_understood_or_a_mistake(argv):
    def refuse(path):
        raise FileNotFoundError(2, "No such file or directory", path)

    with contextlib.suppress(ConfigError):
        parsed = parse_command_line(argv, read_file=refuse, list_dir=refuse, working_directory="/", cgroup_v1=False)
        assert isinstance(parsed, Settings | ShowText)


@pytest.mark.parametrize(
    "text",
    ["0x_", "0o", "0b_", "9" * 5000, "-" + "9" * 100, "0" * 5000 + "8"],
    ids=["no hexadecimal digits", "no octal digits", "no binary digits", "5,000 digits", "100 digits", "5,000 zeros"],
)
def test_numbers_that_are_none(text):
    with pytest.raises(ConfigError):
        flagvalues.INT32.parse(text, None)
    parse_document(f"a: {text}\n".encode())
