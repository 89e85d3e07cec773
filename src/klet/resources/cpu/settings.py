"""Cuts the configuration of the CPU manager, and checks it against the machine. Pure."""

import math
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from msgspec import Struct

from klet.api.quantity import ZERO, Quantity
from klet.config.configuration import KubeletConfiguration
from klet.config.errors import ConfigError
from klet.config.reserved import parse_cpu_set
from klet.host.machine.info import MachineInfo
from klet.model.pod_resources import CPU
from klet.resources.cpu.policy import StaticPolicy, build_static_policy, parse_options
from klet.resources.cpu.state import NONE, STATIC
from klet.resources.cpu.topology import UnknownTopology, build_topology

SHORTEST_PERIOD: Final = timedelta(seconds=1)
"""With less, one pass would follow the other with hardly a pause."""


class CpuManagerSettings(Struct, frozen=True, kw_only=True):
    """Whether containers get CPUs of their own, which ones, and what follows from that."""

    static: StaticPolicy | None = None
    """None with the policy none."""
    reconcile_period: timedelta = timedelta(seconds=10)
    lifts_quota: bool = True
    """The gate DisableCPUQuotaWithExclusiveCPUs."""

    @property
    def policy(self) -> str:
        """The name of the policy."""
        return NONE if self.static is None else STATIC


def cut_cpu_manager_settings(
    config: KubeletConfiguration, machine: MachineInfo, node_allocatable: Mapping[str, Quantity], *, lifts_quota: bool
) -> CpuManagerSettings:
    """Return what the CPU manager gives out; raises ConfigError if the policy does not fit this machine.

    `node_allocatable` is what the node keeps from pods.
    """
    return CpuManagerSettings(
        static=_cut_static_policy(config, machine, node_allocatable) if config.cpu_manager_policy == STATIC else None,
        reconcile_period=max(config.cpu_manager_reconcile_period, SHORTEST_PERIOD),
        lifts_quota=lifts_quota,
    )


def _cut_static_policy(
    config: KubeletConfiguration, machine: MachineInfo, node_allocatable: Mapping[str, Quantity]
) -> StaticPolicy:
    try:
        topology = build_topology(machine.topology)
    except UnknownTopology as error:
        raise ConfigError(f"{error}: write none in cpuManagerPolicy (--cpu-manager-policy)") from error
    return build_static_policy(
        topology,
        parse_options(config.cpu_manager_policy_options),
        # A part of a CPU cannot be kept.
        reserved=math.ceil(node_allocatable.get(CPU, ZERO).milli_value() / 1000),
        specific=parse_cpu_set(config.reserved_system_cpus),
    )
