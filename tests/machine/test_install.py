"""`klet install` on a machine with systemd: the node is there after each boot; `klet uninstall` leaves nothing."""

import json
import time

import pytest

from klet.host.images import BUSYBOX_IMAGE
from klet.testing.vm.debian import VENV
from klet.testing.vm.node import build_pod

KLET = f"{VENV}/bin/klet"
UNITS = ("klet-containerd.service", "klet.service")
PATIENCE = 600

pytestmark = pytest.mark.usefixtures("only_klet", "free_ports")


@pytest.fixture
def free_ports(machine):
    """No other kubelet has the ports of the node."""
    machine.run("systemctl stop kubelet.service || true")


def report(machine, command: str) -> dict:
    return json.loads(machine.output(f"{KLET} {command} -o json 2>/dev/null", timeout=PATIENCE))


def pods(machine) -> list[dict]:
    done = machine.run(f"{KLET} ps -o json", check=False, timeout=PATIENCE)
    return json.loads(done.output)["items"] if done.code == 0 and done.output else []


def listing(machine) -> set[str]:
    """What an installation could leave on the machine."""
    places = "/etc/systemd/system /usr/lib/systemd/system /usr/bin /etc/default /var/lib /run"
    found = machine.output(f"find {places} -maxdepth 1 | grep -i -e klet -e kubelet | sort || true")
    networks = machine.output("ip -brief link | cut -d' ' -f1 | grep -v -e '^lo' -e '^en' -e '^eth' -e '^cni0' || true")
    mounts = machine.output("grep -e /var/lib/klet -e /run/klet /proc/mounts || true")
    return {*found.splitlines(), *networks.splitlines(), *mounts.splitlines()}


def ready_hello(machine, restarts: int) -> dict | None:
    for pod in pods(machine):
        statuses = pod.get("status", {}).get("containerStatuses", [])
        if (
            pod["metadata"]["name"].startswith("hello")
            and statuses
            and all(each["ready"] and each["restartCount"] == restarts for each in statuses)
        ):
            return pod
    return None


def until_hello(machine, *, restarts: int = 0) -> dict:
    """Wait for the pod: soon after a boot, its status may still be the one from before."""
    give_up = time.monotonic() + PATIENCE
    while time.monotonic() < give_up:
        if found := ready_hello(machine, restarts):
            return found
    pytest.fail(machine.output("journalctl -u klet -u klet-containerd -o cat --no-pager | tail -n 80"))


def test_an_installed_node_is_there_after_a_reboot_and_gone_after_its_removal(machine):
    before = listing(machine)
    done = report(machine, "install --no-install")
    assert (done["installed"], done["ready"], done["errors"]) == (True, True, [])
    assert [machine.output(f"systemctl is-enabled {unit}") for unit in UNITS] == ["enabled", "enabled"]
    pod = build_pod("hello", command="echo hello; exec sleep 100000")
    assert pod["spec"]["containers"][0]["image"] == BUSYBOX_IMAGE
    machine.write("/root/hello.json", json.dumps(pod))
    machine.run(f"{KLET} up --detach /root/hello.json", timeout=PATIENCE)
    first = until_hello(machine)

    machine.reboot()
    second = until_hello(machine, restarts=1)
    assert second["metadata"]["uid"] == first["metadata"]["uid"]
    assert [machine.output(f"systemctl is-active {unit}") for unit in UNITS] == ["active", "active"]
    assert "NodeRebooted" in machine.output(f"{KLET} explain hello", timeout=PATIENCE)

    again = report(machine, "install --no-install")
    assert again["changed"] is False

    removed = report(machine, "uninstall --purge")
    assert (removed["installed"], removed["errors"]) == (False, [])
    # What others had may be gone after a boot.
    assert listing(machine) - before == set()


def test_an_installed_node_survives_a_reset(machine):
    before = listing(machine)
    assert report(machine, "install --no-install")["ready"] is True
    machine.write("/root/hello.json", json.dumps(build_pod("hello")))
    machine.run(f"{KLET} up --detach /root/hello.json", timeout=PATIENCE)
    until_hello(machine)
    machine.run("sync")
    machine.reset()
    until_hello(machine, restarts=1)
    assert report(machine, "uninstall --purge")["errors"] == []
    # What others had may be gone after a boot.
    assert listing(machine) - before == set()


def test_a_dry_run_changes_nothing(machine):
    before = listing(machine)
    shown = machine.output(f"{KLET} install --dry-run --no-install", timeout=PATIENCE)
    assert "klet.service" in shown
    # What others had may be gone after a boot.
    assert listing(machine) - before == set()
