"""The text of `/metrics/cadvisor`: which cgroup has which series, and their labels. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import chain
from typing import Final, TypeVar

from klet.host.machine.info import MachineInfo, SystemVersions
from klet.model.stats import (
    CgroupLevel,
    CgroupStats,
    DeviceIo,
    InterfaceCounters,
    MachineFilesystem,
    MemoryCounters,
    StatsSnapshot,
)
from klet.stats import cadvisor_families as families
from klet.stats.cadvisor_families import DiskOperations
from klet.stats.exposition import (
    FamilySamples,
    LabelPair,
    Number,
    SampleRow,
    feed_family,
    label,
    pair_families,
    write_exposition,
    write_labels,
    write_timestamp,
)

T = TypeVar("T")

_LONGEST_PATH: Final = 4096
"""As the kernel has it: a path that is not cut differs from all others."""
_CPU_TOTAL: Final = label("cpu", "total")
_TASK_STATES: Final = tuple(label("state", state) for state in families.TASK_STATES)
_MAX_OPEN_FILES: Final = label("ulimit", "max_open_files")


def write_cadvisor(
    snapshot: StatsSnapshot | None, machine: MachineInfo | None, versions: SystemVersions | None, *, now: datetime
) -> Iterator[bytes]:
    """Yield the text, family by family. None is what could not be read."""
    root = snapshot.root if snapshot is not None else None
    is_broken = root is None or versions is None
    return write_exposition(
        chain(
            _cgroup_samples(snapshot, now=now) if snapshot is not None else (),
            _machine_samples(machine) if machine is not None else (),
            _version_samples(versions) if versions is not None else (),
            pair_families([families.SCRAPE_ERROR], [SampleRow("", "", int(is_broken))]),
            pair_families([families.MACHINE_SCRAPE_ERROR], [SampleRow("", "", int(machine is None))]),
        )
    )


class _CgroupLabels:
    """The labels and the timestamp of one cgroup: what all its series share."""

    def __init__(self, stats: CgroupStats) -> None:
        cgroup = stats.cgroup
        self.stats = stats
        self.at = write_timestamp(stats.sampled_at)
        self._pairs = (
            label("container", cgroup.container),
            label("id", cgroup.path, longest=_LONGEST_PATH),
            label("image", cgroup.image),
            label("name", cgroup.container_id or ""),
            label("namespace", cgroup.namespace),
            label("pod", cgroup.pod),
        )
        self.text = write_labels(self._pairs)

    def row(self, values: T, *more: LabelPair) -> SampleRow[T]:
        """Return a row with labels besides those of the cgroup."""
        return SampleRow(write_labels((*self._pairs, *more)), self.at, values)


def _cgroup_samples(snapshot: StatsSnapshot, *, now: datetime) -> Iterator[FamilySamples]:
    cgroups = [_CgroupLabels(stats) for stats in snapshot.cgroups]
    seen_at, seen = write_timestamp(now), int(now.timestamp())
    roots = [each for each in cgroups if each.stats.cgroup.level is CgroupLevel.ROOT]
    filesystems = [row for each in roots for row in _filesystem_rows(each, snapshot.filesystems)]
    return chain(
        pair_families(families.SETTINGS, [SampleRow(each.text, "", each.stats) for each in cgroups]),
        pair_families(families.CGROUPS, [SampleRow(each.text, each.at, each.stats) for each in cgroups]),
        feed_family(families.LAST_SEEN, (SampleRow(each.text, seen_at, seen) for each in cgroups)),
        feed_family(families.CPU_USAGE, (each.row(each.stats, _CPU_TOTAL) for each in cgroups)),
        feed_family(families.TASKS, (each.row(0, state) for each in cgroups for state in _TASK_STATES)),
        feed_family(families.PAGE_FAULTS, (row for each in cgroups for row in _fault_rows(each))),
        feed_family(families.SOFT_LIMITS, (row for each in cgroups for row in _limit_rows(each))),
        pair_families(families.INTERFACES, [row for each in cgroups for row in _interface_rows(each)]),
        _device_samples(cgroups, filesystems),
        pair_families(families.FILESYSTEMS, filesystems),
    )


def _device_samples(
    cgroups: Sequence[_CgroupLabels], filesystems: Sequence[SampleRow[MachineFilesystem]]
) -> Iterator[FamilySamples]:
    devices = [(each, row) for each in cgroups for row in _device_rows(each)]
    # For `/` the operations are those of the disks below its filesystems, not those of its controller.
    of_root = (SampleRow(row.labels, row.at, families.filesystem_operations(row.values)) for row in filesystems)
    of_others = (
        SampleRow(row.labels, row.at, families.device_operations(row.values))
        for each, row in devices
        if each.stats.cgroup.level is not CgroupLevel.ROOT
    )
    operations: list[SampleRow[DiskOperations]] = [*of_root, *of_others]
    return chain(
        pair_families(families.DEVICES, [row for _, row in devices]),
        pair_families(families.OPERATIONS, operations),
        feed_family(families.BLOCK_IO, (row for each in cgroups for row in _block_io_rows(each))),
    )


def _filesystem_rows(
    root: _CgroupLabels, filesystems: Iterable[MachineFilesystem]
) -> Iterator[SampleRow[MachineFilesystem]]:
    """Yield one row for each device: what is mounted twice is shown once."""
    by_device = {each.device: each for each in reversed(tuple(filesystems))}
    return (root.row(each, label("device", device)) for device, each in sorted(by_device.items()))


def _device_rows(cgroup: _CgroupLabels) -> Iterator[SampleRow[DeviceIo]]:
    by_device = {_device_name(each): each for each in cgroup.stats.io}
    return (cgroup.row(each, label("device", device)) for device, each in by_device.items())


def _block_io_rows(cgroup: _CgroupLabels) -> Iterator[SampleRow[Number]]:
    for each in cgroup.stats.io:
        device = (label("device", _device_name(each)), f'major="{each.major}"', f'minor="{each.minor}"')
        for operation, count in each.bytes.items():
            yield cgroup.row(count, *device, label("operation", operation))


def _device_name(device: DeviceIo) -> str:
    """Return the label of a device; one without a name must not look like another one without a name."""
    return device.device or f"{device.major}:{device.minor}"


def _interface_rows(cgroup: _CgroupLabels) -> Iterator[SampleRow[InterfaceCounters]]:
    return (cgroup.row(each, label("interface", each.name)) for each in cgroup.stats.network or ())


_CONTAINER_SCOPE: Final = label("scope", "container")
_HIERARCHY_SCOPE: Final = label("scope", "hierarchy")
_PAGE_FAULT: Final = label("failure_type", "pgfault")
_MAJOR_PAGE_FAULT: Final = label("failure_type", "pgmajfault")
_NO_MEMORY: Final = MemoryCounters(usage=0, working_set=0)


def _fault_rows(cgroup: _CgroupLabels) -> Iterator[SampleRow[Number]]:
    memory = cgroup.stats.memory or _NO_MEMORY
    yield cgroup.row(memory.page_faults, _PAGE_FAULT, _CONTAINER_SCOPE)
    yield cgroup.row(memory.hierarchy_page_faults, _PAGE_FAULT, _HIERARCHY_SCOPE)
    yield cgroup.row(memory.major_page_faults, _MAJOR_PAGE_FAULT, _CONTAINER_SCOPE)
    yield cgroup.row(memory.hierarchy_major_page_faults, _MAJOR_PAGE_FAULT, _HIERARCHY_SCOPE)


def _limit_rows(cgroup: _CgroupLabels) -> Iterator[SampleRow[Number]]:
    limit = cgroup.stats.processes.max_open_files
    if limit is not None:
        yield cgroup.row(limit, _MAX_OPEN_FILES)


def _machine_samples(machine: MachineInfo) -> Iterator[FamilySamples]:
    pairs = (
        label("boot_id", machine.boot_id),
        label("machine_id", machine.machine_id),
        label("system_uuid", machine.system_uuid),
    )

    def row(values: T, *more: LabelPair) -> SampleRow[T]:
        return SampleRow(write_labels((*pairs, *more)), "", values)

    dimms = [(label("type", name), each) for name, each in sorted(machine.dimms.items())]
    return chain(
        pair_families(families.MACHINE, [row(machine)]),
        pair_families([families.NVM_CAPACITY], [row(0, label("mode", mode)) for mode in families.NVM_MODES]),
        pair_families([families.DIMM_COUNT], [row(each.count, kind) for kind, each in dimms]),
        pair_families([families.DIMM_CAPACITY], [row(each.capacity, kind) for kind, each in dimms]),
    )


def _version_samples(versions: SystemVersions) -> Iterator[FamilySamples]:
    # There is no cAdvisor and no Docker here; upstream's kubelet has these three empty too.
    pairs = (
        *(label(name, "") for name in ("cadvisorRevision", "cadvisorVersion", "dockerVersion")),
        label("kernelVersion", versions.kernel),
        label("osVersion", versions.image),
    )
    return pair_families([families.VERSIONS], [SampleRow(write_labels(pairs), "", 1)])
