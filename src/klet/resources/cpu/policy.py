"""The static policy: its options, the CPUs that it keeps for the system, and what it picks (NewStaticPolicy). Pure."""

from collections.abc import Mapping

from msgspec import Struct

from klet.config.errors import ConfigError
from klet.config.flagvalues import parse_bool
from klet.config.manager_options import ACROSS_CORES, ACROSS_NUMA, BY_CACHE, BY_SOCKET, FULL_CORES, STRICT
from klet.host.cpulist import format_cpu_list
from klet.resources.cpu.distributed import take_distributed
from klet.resources.cpu.packed import CpuOrder, TooFewCpus, take_packed
from klet.resources.cpu.topology import CpuSet, CpuTopology


class CpuPolicyOptions(Struct, frozen=True, kw_only=True):
    """How CPUs are chosen (cpuManagerPolicyOptions). Which may go together is checked in `config/`."""

    full_cores: bool = False
    """Containers get whole cores or none."""
    strict_reservation: bool = False
    """Reserved CPUs are not shared."""
    across_numa: bool = False
    across_cores: bool = False
    by_cache: bool = False
    by_socket: bool = False


class StaticPolicy(Struct, frozen=True, kw_only=True):
    """Gives containers of Guaranteed pods with whole CPUs these CPUs alone."""

    topology: CpuTopology
    options: CpuPolicyOptions = CpuPolicyOptions()
    reserved: CpuSet
    """Never given to a container alone."""

    @property
    def reserved_cores(self) -> CpuSet:
        """The reserved CPUs, with those that share a core with them."""
        places, cores = self.topology.places, self.topology.cores
        return frozenset().union(*(cores[places[cpu].core] for cpu in self.reserved))

    @property
    def managed(self) -> CpuSet:
        """The CPUs that containers run on."""
        cpus = self.topology.cpus
        return cpus - self.reserved if self.options.strict_reservation else cpus

    def take(self, available: CpuSet, count: int) -> CpuSet | TooFewCpus:
        """Return so many of the available CPUs (takeByTopology)."""
        return take(self.topology, self.options, available, count)

    def near(self, available: CpuSet, nodes: frozenset[int]) -> CpuSet:
        """Return those of the available CPUs that are on NUMA nodes, or on their sockets (getAlignedCPUs)."""
        if not self.options.by_socket:
            return available & self.topology.in_nodes(nodes)
        sockets = self.topology.sockets_of_nodes(nodes)
        return available & frozenset().union(*(self.topology.sockets[socket] for socket in sockets))


def parse_options(options: Mapping[str, str]) -> CpuPolicyOptions:
    """Return options that were found right when the agent started."""

    def chosen(name: str) -> bool:
        return parse_bool(options.get(name, "false"))

    return CpuPolicyOptions(
        full_cores=chosen(FULL_CORES),
        strict_reservation=chosen(STRICT),
        across_numa=chosen(ACROSS_NUMA),
        across_cores=chosen(ACROSS_CORES),
        by_cache=chosen(BY_CACHE),
        by_socket=chosen(BY_SOCKET),
    )


def build_static_policy(
    topology: CpuTopology, options: CpuPolicyOptions, *, reserved: int, specific: CpuSet
) -> StaticPolicy:
    """Return the policy that keeps so many CPUs for the system; raises ConfigError if the machine does not suit it.

    `specific` are the CPUs themselves, where the configuration names them.
    """
    if options.by_socket and len(topology.sockets) > len(topology.nodes):
        raise ConfigError(
            "new static policy error: Align by socket is not compatible with hardware where number of sockets are more "
            f"than number of NUMA: take {BY_SOCKET} out of cpuManagerPolicyOptions (--cpu-manager-policy-options)"
        )
    taken = specific or take(topology, options, topology.cpus, reserved)
    cpus = frozenset[int]() if isinstance(taken, TooFewCpus) else taken
    if len(cpus) != reserved:
        raise ConfigError(
            "new static policy error: [cpumanager] unable to reserve the required amount of CPUs "
            f"(size of {format_cpu_list(cpus)} did not equal {reserved}): "
            "lower cpu in systemReserved or kubeReserved, or set reservedSystemCPUs"
        )
    if unknown := cpus - topology.cpus:
        raise ConfigError(
            "new static policy error: [cpumanager] unable to build the reserved physical CPUs from the reserved set: "
            f"unknown CPU ID: {min(unknown)}: see reservedSystemCPUs (--reserved-cpus)"
        )
    return StaticPolicy(topology=topology, options=options, reserved=cpus)


def take(topology: CpuTopology, options: CpuPolicyOptions, available: CpuSet, count: int) -> CpuSet | TooFewCpus:
    """Return so many of the available CPUs, as the options want them."""
    order = CpuOrder.SPREAD if options.across_cores else CpuOrder.PACKED
    if options.across_numa:
        group = topology.cpus_per_core if options.full_cores else 1
        return take_distributed(topology, available, count, group=group, order=order)
    return take_packed(topology, available, count, order=order, by_cache=options.by_cache)
