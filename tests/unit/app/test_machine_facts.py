"""Facts of the machine."""

from klet.app.machine_facts import find_thermal_paths


def test_thermal_files_come_in_the_order_of_the_cpus(tmp_path):
    for cpu in ("cpu10", "cpu2", "cpufreq"):
        (tmp_path / "devices/system/cpu" / cpu / "thermal_throttle").mkdir(parents=True)
    (tmp_path / "devices/system/cpu/cpu3").mkdir()
    names = [path.split("/")[-2] for path in find_thermal_paths(tmp_path)]
    assert names == ["cpu2", "cpu10"]


def test_a_machine_without_them(tmp_path):
    assert find_thermal_paths(tmp_path) == ()
