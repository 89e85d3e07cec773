import pytest

from klet.config.configuration import KubeletConfiguration
from klet.config.configuration_flags import get_field
from klet.config.defaults import (
    GATED_DEFAULTS,
    KEEPS_ZERO,
    PATH_FIELDS,
    POINTER_DEFAULTS,
    VALUE_DEFAULTS,
    apply_defaults,
    apply_eviction_defaults,
    default_configuration,
    resolve_paths,
)
from klet.config.gates import KNOWN_GATES, resolve_gates

GATES = resolve_gates({})


def test_a_document_is_not_changed_by_defaulting():
    fields = {"authentication": {"webhook": {}}, "port": 0}
    apply_defaults(fields, gates=GATES)
    apply_eviction_defaults(fields)
    resolve_paths({**fields, "staticPodPath": "a"}, directory="/etc")
    assert fields == {"authentication": {"webhook": {}}, "port": 0}


def test_defaulting_twice_changes_nothing():
    once = apply_defaults({"maxPods": 5, "maxParallelImagePulls": 3}, gates=GATES)
    assert apply_defaults(once, gates=GATES) == once


def test_a_struct_without_defaulting_is_empty():
    config = KubeletConfiguration()
    assert (config.port, config.enable_server, config.container_log_max_size) == (0, False, "")


@pytest.mark.parametrize("path", sorted({*POINTER_DEFAULTS, *VALUE_DEFAULTS, *PATH_FIELDS, *GATED_DEFAULTS}))
def test_tables_name_fields_that_exist(path):
    get_field(default_configuration(GATES), path)


def test_no_field_has_two_defaults():
    assert not set(POINTER_DEFAULTS) & set(VALUE_DEFAULTS)


def test_tables_name_gates_that_exist():
    assert set(GATED_DEFAULTS.values()) <= set(KNOWN_GATES)


def test_zeros_that_are_kept_are_pointers_upstream():
    assert "port" not in KEEPS_ZERO
    assert "healthzPort" in KEEPS_ZERO
