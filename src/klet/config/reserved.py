"""Resources kept back from pods: reserved maps, reserved CPUs, reserved memory and QoS shares."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from klet.api.quantity import Quantity
from klet.config.configuration import KubeletConfiguration
from klet.config.errors import ConfigError, prefixed
from klet.config.sections import MemoryReservation

RESERVABLE: Final = ("cpu", "memory", "ephemeral-storage", "pid")

_CPU: Final = re.compile(r"[0-9]+")
_CPU_DIGITS: Final = 5
"""Linux numbers its CPUs with fewer; a bound keeps a mistyped range from filling the memory."""
_PERCENT: Final = re.compile(r"[0-9]{1,3}%")


def parse_reserved(reserved: Mapping[str, str], *, flag: str) -> Mapping[str, Quantity]:
    """Return the amounts of `--kube-reserved` or `--system-reserved`."""
    with prefixed(f"--{flag} value failed to parse: "):
        return {name: _reserved_amount(name, amount) for name, amount in sorted(reserved.items())}


def effective_reservations(config: KubeletConfiguration) -> tuple[Mapping[str, Quantity], Mapping[str, Quantity]]:
    """Return what is kept for the system and for Kubernetes: a list of reserved CPUs replaces both amounts of CPU."""
    system = parse_reserved(config.system_reserved, flag="system-reserved")
    kube = parse_reserved(config.kube_reserved, flag="kube-reserved")
    cpus = parse_cpu_set(config.reserved_system_cpus)
    if not cpus:
        return system, kube
    return {**system, "cpu": Quantity.of(len(cpus))}, {name: kube[name] for name in kube if name != "cpu"}


def parse_qos_reserved(reserved: Mapping[str, str]) -> Mapping[str, int]:
    """Return the percentages of `--qos-reserved`; only memory can be kept back."""
    percentages: dict[str, int] = {}
    for name, share in sorted(reserved.items()):
        if name != "memory":
            raise ConfigError(f'--qos-reserved value failed to parse: unsupported resource "{name}"')
        if not _PERCENT.fullmatch(share) or int(share[:-1]) > 100:
            raise ConfigError(f'--qos-reserved value failed to parse: "{share}" is not a percentage from 0% to 100%')
        percentages[name] = int(share[:-1])
    return percentages


def parse_cpu_set(text: str) -> frozenset[int]:
    """Return the CPUs of a list such as `0-2,7`."""
    cpus: set[int] = set()
    for part in text.split(",") if text else ():
        first, dash, last = part.partition("-")
        low = _cpu(first)
        high = _cpu(last) if dash else low
        if high < low:
            raise ConfigError(f"invalid range {part} ({low} > {high})")
        cpus.update(range(low, high + 1))
    return frozenset(cpus)


def find_reserved_cpu_problems(cpus: str, *, cgroups: Sequence[str]) -> Iterator[str]:
    if not cpus:
        return
    if any(cgroups):
        yield (
            "can't use reservedSystemCPUs (--reserved-cpus) with systemReservedCgroup (--system-reserved-cgroup) "
            "or kubeReservedCgroup (--kube-reserved-cgroup)"
        )
    try:
        parse_cpu_set(cpus)
    except ConfigError as error:
        yield f"unable to parse reservedSystemCPUs (--reserved-cpus) {cpus}, error: {error}"


def find_reserved_memory_problems(reservations: Sequence[MemoryReservation]) -> Iterator[str]:
    seen: set[tuple[int, str]] = set()
    for reservation in reservations:
        node = reservation.numa_node
        for name, amount in sorted(reservation.limits.items()):
            if name != "memory" and not name.startswith("hugepages-"):
                yield (
                    f'the limit type "{name}" for NUMA node {node} is not supported, '
                    "only [memory hugepages-<HugePageSize>] is accepted"
                )
            if amount.is_zero:
                yield f'reserved memory may not be zero for NUMA node {node} and resource "{name}"'
            if (node, name) in seen:
                yield f'the reserved memory has a duplicate value for NUMA node {node} and resource "{name}"'
            seen.add((node, name))


def _reserved_amount(name: str, text: str) -> Quantity:
    if name not in RESERVABLE:
        raise ConfigError(f'cannot reserve "{name}" resource')
    try:
        amount = Quantity.parse(text)
    except ValueError as error:
        raise ConfigError(f'failed to parse quantity "{text}" for "{name}" resource: {error}') from error
    if amount.sign < 0:
        raise ConfigError(f'resource quantity for "{name}" cannot be negative: {text}')
    return amount


def _cpu(text: str) -> int:
    if not _CPU.fullmatch(text):
        raise ConfigError(f'strconv.Atoi: parsing "{text}": invalid syntax')
    if len(text) > _CPU_DIGITS:
        raise ConfigError(f'strconv.Atoi: parsing "{text}": value out of range')
    return int(text)
