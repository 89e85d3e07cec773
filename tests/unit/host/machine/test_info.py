"""Facts that follow from others."""

import pytest

from klet.host.machine.info import Cpu, MachineInfo, go_architecture


def test_online_cpus_and_sizes_of_huge_pages():
    machine = MachineInfo(
        cpus=2, memory=1, topology=(Cpu(0, 0, 0, 0), Cpu(4, 1, 0, 0)), hugepages={1 << 30: 0, 2 << 20: 3}
    )
    assert machine.online_cpus == {0, 4}
    assert machine.hugepage_sizes == (2 << 20, 1 << 30)


@pytest.mark.parametrize(
    ("machine", "architecture"),
    [
        pytest.param("x86_64", "amd64", id="Intel and AMD"),
        pytest.param("aarch64", "arm64", id="ARM"),
        pytest.param("riscv64", "riscv64", id="an architecture with one name"),
    ],
)
def test_names_of_architectures(machine, architecture):
    assert go_architecture(machine) == architecture
