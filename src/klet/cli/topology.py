"""`klet topology`: the machine as a picture, through the agent's own API."""

import sys
from collections.abc import Iterator, Sequence
from typing import Final

from klet.api.klet_v1 import encode_readable
from klet.api.klet_v1_topology import (
    EXCLUSIVE,
    RESERVED,
    CoreGroup,
    CpuSocket,
    LogicalCpu,
    MachineTopology,
    NodeMemory,
    NumaMemory,
    PhysicalCore,
    ResourceHolder,
)
from klet.cli.client import AgentClient
from klet.cli.json_text import as_json_text
from klet.host.cpulist import format_cpu_list
from klet.model.foreign_text import as_terminal_text
from klet.model.pull_progress import describe_bytes

_LETTERS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_WIDTH: Final = 96
_CELLS: Final = 32
_RESERVED_MARK: Final = "r"
_SHARED_MARK: Final = "."
_GIVEN_MARK: Final = "#"


def print_topology(client: AgentClient, *, as_json: bool) -> None:
    topology = client.topology()
    text = as_json_text(encode_readable(topology)) if as_json else draw_topology(topology)
    sys.stdout.write(as_terminal_text(text))
    sys.stdout.flush()


def draw_topology(topology: MachineTopology) -> str:
    """Return the picture: sockets with their NUMA nodes, cores and threads, and who has what."""
    lines = [*_head(topology)]
    drawn: set[int] = set()
    nodes = {node.id: node for node in topology.numa_nodes}
    for socket in topology.sockets:
        lines += ["", f"socket {socket.id}", *_draw_socket(socket, nodes, drawn, _number_width(topology))]
    for node in topology.numa_nodes:
        if node.id not in drawn:
            lines += ["", *_draw_node(node, "no CPUs")]
    lines += ["", *_legend(topology)]
    return "\n".join(lines) + "\n"


def _head(topology: MachineTopology) -> Iterator[str]:
    cores = [core for socket in topology.sockets for group in socket.groups for core in group.cores]
    counts = (
        (len(topology.sockets), "socket"),
        (len(topology.numa_nodes), "NUMA node"),
        (len(cores), "core"),
        (sum(len(core.cpus) for core in cores), "CPU"),
    )
    shown = ", ".join(f"{count} {what}{'' if count == 1 else 's'}" for count, what in counts)
    policies = topology.policies
    yield f"{topology.node}: {shown}"
    yield (
        f"policies: CPU {policies.cpu}, memory {policies.memory}, topology {policies.topology} "
        f"(scope {policies.topology_scope})"
    )


def _draw_socket(socket: CpuSocket, nodes: dict[int, NumaMemory], drawn: set[int], width: int) -> Iterator[str]:
    for group in socket.groups:
        node = nodes.get(group.numa_node)
        if node is not None and group.numa_node not in drawn:
            drawn.add(group.numa_node)
            yield from _draw_node(node, "")
        else:
            # Without NUMA nodes, or with one for all sockets.
            yield f"  NUMA node {group.numa_node}"
        yield from _draw_cores(group, width)


def _draw_node(node: NumaMemory, note: str) -> Iterator[str]:
    others = [each for each in node.group if each != node.id]
    notes = [note] if note else []
    if others:
        notes.append(f"used together with {format_cpu_list(others)}")
    yield f"  NUMA node {node.id}{f' ({text})' if (text := ', '.join(notes)) else ''}"
    for memory in node.memory:
        if memory.total:
            yield f"    {memory.resource:<14} {_bar(memory)}  {_describe(memory)}"


def _describe(memory: NodeMemory) -> str:
    parts = [f"{describe_bytes(memory.total)} in all"]
    if memory.system_reserved:
        parts.append(f"{describe_bytes(memory.system_reserved)} reserved")
    if memory.given:
        parts.append(f"{describe_bytes(memory.given)} given to containers")
    return ", ".join([*parts, f"{describe_bytes(memory.free)} free"])


def _bar(memory: NodeMemory) -> str:
    """Return how much is given and reserved, in cells; what is there at all has one at least."""
    given, reserved = _cells(memory.given, memory.total), _cells(memory.system_reserved, memory.total)
    bar = _GIVEN_MARK * given + _RESERVED_MARK * reserved
    return f"[{bar[:_CELLS]:{_SHARED_MARK}<{_CELLS}}]"


def _cells(size: int, total: int) -> int:
    return min(_CELLS, max(1, round(_CELLS * size / total))) if size > 0 else 0


def _draw_cores(group: CoreGroup, width: int) -> Iterator[str]:
    cores = [_draw_core(core, width) for core in group.cores]
    for_each = max((len(each) for each in cores), default=1) + 1
    per_line = max(1, (_WIDTH - 4) // for_each)
    for first in range(0, len(cores), per_line):
        yield "    " + " ".join(cores[first : first + per_line])


def _draw_core(core: PhysicalCore, width: int) -> str:
    return "[" + "|".join(f"{cpu.id:>{width}} {_mark(cpu)}" for cpu in core.cpus) + "]"


def _mark(cpu: LogicalCpu) -> str:
    if cpu.use == EXCLUSIVE and cpu.holder is not None:
        return _letter(cpu.holder)
    return _RESERVED_MARK if cpu.use == RESERVED else _SHARED_MARK


def _letter(index: int) -> str:
    """Return A to Z, then AA, AB and so on."""
    letters = ""
    index += 1
    while index:
        index, digit = divmod(index - 1, len(_LETTERS))
        letters = _LETTERS[digit] + letters
    return letters


def _number_width(topology: MachineTopology) -> int:
    numbers = [
        cpu.id for socket in topology.sockets for group in socket.groups for core in group.cores for cpu in core.cpus
    ]
    return len(str(max(numbers, default=0)))


def _legend(topology: MachineTopology) -> Iterator[str]:
    cpus = [cpu for socket in topology.sockets for group in socket.groups for core in group.cores for cpu in core.cpus]
    yield f"{_SHARED_MARK}  shared: {_list_cpus([cpu for cpu in cpus if _mark(cpu) == _SHARED_MARK])}"
    reserved = [cpu for cpu in cpus if _mark(cpu) == _RESERVED_MARK]
    if reserved:
        also = " (shared, too)" if all(cpu.shared for cpu in reserved) else ""
        yield f"{_RESERVED_MARK}  reserved for the system: {_list_cpus(reserved)}{also}"
    if any(memory.given for node in topology.numa_nodes for memory in node.memory):
        yield f"{_GIVEN_MARK}  memory given to containers"
    for index, holder in enumerate(topology.holders):
        yield f"{_letter(index)}  {_describe_holder(holder)}"


def _list_cpus(cpus: Sequence[LogicalCpu]) -> str:
    return _count("CPU", [cpu.id for cpu in cpus]) if cpus else "no CPUs"


def _count(what: str, numbers: Sequence[int]) -> str:
    """Return `CPU 3` or `CPUs 3,7-9`."""
    return f"{what}{'' if len(numbers) == 1 else 's'} {format_cpu_list(numbers)}"


def _describe_holder(holder: ResourceHolder) -> str:
    name = f"{holder.namespace}/{holder.pod}" if holder.pod else f"pod {holder.uid}"
    parts = [_count("CPU", holder.cpus)] if holder.cpus else []
    parts += [f"{describe_bytes(size)} of {resource}" for resource, size in holder.memory.items() if size]
    where = f" from {_count('NUMA node', holder.numa_nodes)}" if any(holder.memory.values()) else ""
    return f"{name} ({holder.container}): {', '.join(parts) or 'nothing any more'}{where}"
