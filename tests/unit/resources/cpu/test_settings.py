"""What the configuration makes of the CPU manager on a machine."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from klet.api.quantity import Quantity
from klet.config.defaults import default_configuration
from klet.config.errors import ConfigError
from klet.config.gates import resolve_gates
from klet.host.cpulist import format_cpu_list
from klet.host.machine.info import MachineInfo
from klet.resources.cpu.policy import CpuPolicyOptions
from klet.resources.cpu.settings import CpuManagerSettings, cut_cpu_manager_settings
from klet.testing.machines import SMALL, list_cpus

DEFAULT = default_configuration(resolve_gates({}))
MACHINE = MachineInfo(cpus=8, memory=1 << 30, topology=list_cpus(SMALL))


def cut(machine=MACHINE, *, keeps="1", lifts_quota=True, **fields):
    config = replace(DEFAULT, **fields)
    kept = {"cpu": Quantity.parse(keeps)}
    return cut_cpu_manager_settings(config, machine, kept, lifts_quota=lifts_quota)


def test_by_default_nobody_has_cpus_alone():
    assert cut() == CpuManagerSettings(static=None, reconcile_period=timedelta(seconds=10), lifts_quota=True)
    assert cut().policy == "none"
    assert cut(machine=MachineInfo(cpus=8, memory=1 << 30)).static is None


@pytest.mark.parametrize(
    ("keeps", "fields", "reserved"),
    [
        pytest.param("1", {}, "0", id="one"),
        pytest.param("1001m", {}, "0,4", id="a little more than one"),
        pytest.param("500m", {}, "0", id="half a CPU"),
        pytest.param("2", {"reserved_system_cpus": "3,7"}, "3,7", id="named ones"),
    ],
)
def test_cpus_that_are_kept(keeps, fields, reserved):
    found = cut(keeps=keeps, cpu_manager_policy="static", **fields)
    assert found.static is not None
    assert (found.policy, format_cpu_list(found.static.reserved)) == ("static", reserved)


def test_what_else_is_set():
    found = cut(
        cpu_manager_policy="static",
        cpu_manager_policy_options={"full-pcpus-only": "true"},
        cpu_manager_reconcile_period=timedelta(milliseconds=1),
        lifts_quota=False,
    )
    assert found.static is not None
    assert found.static.options == CpuPolicyOptions(full_cores=True)
    assert (found.reconcile_period, found.lifts_quota) == (timedelta(seconds=1), False)


@pytest.mark.parametrize(
    ("machine", "keeps", "message"),
    [
        pytest.param(
            MachineInfo(cpus=8, memory=1 << 30),
            "1",
            "could not detect number of cpus: the kernel does not report which are online: "
            "write none in cpuManagerPolicy (--cpu-manager-policy)",
            id="CPUs that are not known",
        ),
        pytest.param(
            MACHINE,
            "9",
            "new static policy error: [cpumanager] unable to reserve the required amount of CPUs "
            "(size of  did not equal 9): lower cpu in systemReserved or kubeReserved, or set reservedSystemCPUs",
            id="more than there are",
        ),
    ],
)
def test_a_machine_that_does_not_suit_it(machine, keeps, message):
    with pytest.raises(ConfigError) as caught:
        cut(machine, keeps=keeps, cpu_manager_policy="static")
    assert str(caught.value) == message
