"""Rules that no file can break, because defaulting comes before; a flag or a later gate can."""

import pytest
from msgspec.structs import replace

from klet.config.defaults import default_configuration
from klet.config.gates import resolve_gates
from klet.config.sections import CrashLoopBackOff, VModuleItem
from klet.config.validation import validate_configuration

GATES = resolve_gates({})
GOOD = default_configuration(GATES)
PREFIX = "invalid configuration: "


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, (), id="the defaults are good"),
        pytest.param({"pod_logs_dir": ""}, (f"{PREFIX}podLogsDir was not specified",), id="no directory for pod logs"),
        pytest.param({"pod_logs_dir": "logs"}, (f'{PREFIX}pod logs path "logs" must be absolute path',),
                     id="a relative one"),
        pytest.param({"pod_logs_dir": "/logs/"}, (f'{PREFIX}pod logs path "/logs/" must be normalized',),
                     id="one with a slash at the end"),
        pytest.param({"container_runtime_endpoint": ""},
                     (f"{PREFIX}the containerRuntimeEndpoint was not specified or empty",), id="no runtime"),
        pytest.param({"crash_loop_back_off": CrashLoopBackOff()},
                     ((f"{PREFIX}FeatureGate KubeletCrashLoopBackOffMax is enabled, "
                      "CrashLoopBackOff.MaxContainerRestartPeriod must be set"),), id="a gate without its setting"),
        pytest.param({"logging": replace(GOOD.logging, vmodule=(VModuleItem(file_pattern="a", verbosity=2**31),))},
                     ("logging.vmodule[0]: Invalid value: 2147483648: Must be <= 2147483647",),
                     id="too much verbosity of a file"),
        pytest.param({"port": 0}, (f"{PREFIX}port (--port) 0 must be between 1 and 65535, inclusive",),
                     id="a port of zero from a flag"),
    ],
)  # fmt: skip
def test_rule(changes, expected):
    assert validate_configuration(replace(GOOD, **changes), GATES, cgroup_v1=False) == expected


def test_gates_that_are_off_and_unused_are_fine():
    gates = resolve_gates({"KubeletEnsureSecretPulledImages": False, "KubeletCrashLoopBackOffMax": False})
    config = default_configuration(gates)
    assert validate_configuration(config, gates, cgroup_v1=False) == ()
