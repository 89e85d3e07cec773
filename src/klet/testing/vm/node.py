"""A node on the whole machine, as its packages would set it up: `kubelet.service`, klet or upstream's kubelet in it."""

import json
import secrets
import shlex
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from klet.api.codec import decode
from klet.api.pod import Pod, PodList
from klet.host.images import BUSYBOX_IMAGE
from klet.testing.vm.debian import HOST_NAME, PROGRAMS, VENV
from klet.testing.vm.machine import CommandFailed, DebianMachine
from klet.testing.vm.qemu import MachineFailed

KLET: Final = "klet"
UPSTREAM: Final = "upstream"
UNIT: Final = "kubelet.service"
CONFIG: Final = "/var/lib/kubelet/config.yaml"
MANIFESTS: Final = "/etc/kubernetes/manifests"
CRI: Final = "unix:///run/containerd/containerd.sock"
PATIENCE: Final = 240.0
"""Seconds for what takes some on an emulated machine, also when its host is busy."""
_PORT: Final = 10255
_POLL: Final = 0.3
_UNIT_TEXT: Final = """\
[Unit]
Description=kubelet: The Kubernetes Node Agent
Wants=network-online.target
After=network-online.target containerd.service test-images.service

[Service]
Type=notify
ExecStart=/usr/bin/kubelet --config=/var/lib/kubelet/config.yaml $KUBELET_EXTRA_ARGS
EnvironmentFile=-/etc/default/kubelet
Restart=on-failure
RestartSec=1
WatchdogSec=120
StartLimitInterval=0
TimeoutStartSec=240

[Install]
WantedBy=multi-user.target
"""


class SystemdNode:
    """Static pods and the agent of one machine."""

    def __init__(self, *, machine: DebianMachine, agent: str = KLET) -> None:
        self.machine = machine
        self.agent = agent
        self._configured: tuple[str, str] | None = None
        """The configuration and the flags that the running agent was started with."""

    def install(self) -> None:
        """Put the program and its unit where the packages have them; nothing is started."""
        program = f"{VENV}/bin/kubelet" if self.agent == KLET else f"{PROGRAMS}/kubelet"
        self.machine.run(f"mkdir -p {MANIFESTS} /var/lib/kubelet && ln -sfn {program} /usr/bin/kubelet")
        self.machine.write(f"/usr/lib/systemd/system/{UNIT}", _UNIT_TEXT)
        self.machine.run("systemctl daemon-reload")

    def configure(self, *flags: str, **settings: object) -> tuple[str, str]:
        """Write the configuration for the next start, and return it."""
        config, arguments = json.dumps(_configuration() | settings), " ".join(flags)
        self.machine.write(CONFIG, config)
        self.machine.write("/etc/default/kubelet", f"KUBELET_EXTRA_ARGS={shlex.quote(arguments)}\n")
        return config, arguments

    def start(self, *flags: str, **settings: object) -> None:
        """Have the agent run with a configuration; systemd says when it is ready. Raises MachineFailed."""
        configured = self.configure(*flags, **settings)
        if configured == self._configured and self.property("ActiveState") == "active":
            return
        self._configured = None
        try:
            self.machine.run(f"systemctl restart {UNIT}")
        except MachineFailed as error:
            raise MachineFailed(f"{error}\n{self.log()}") from error
        self._configured = configured

    def stop(self) -> None:
        self._configured = None
        self.machine.run(f"systemctl stop {UNIT}; systemctl reset-failed {UNIT} || true")

    def remove_pods(self) -> None:
        """Take every manifest away, and wait until the pods are gone and nothing of them runs."""
        if not self.machine.output(f"ls {MANIFESTS}"):
            return
        if self.property("ActiveState") != "active":
            self.start(failSwapOn=False)
        self.machine.run(f"rm -f {MANIFESTS}/*")
        self.until(lambda pods: not pods, what="no pods")
        self.until_true('test -z "$(ctr -n k8s.io tasks ls -q)"')

    def now(self) -> str:
        """Return the machine's time, as `log` takes it: what is logged from now on comes after it."""
        return self.machine.output("date +@%s")

    def log(self, *, since: str = "-2h") -> str:
        """Return the newest lines that the agent has logged since then."""
        return self.machine.output(f"journalctl -u {UNIT} -o cat --no-pager --since {since} | tail -n 200")

    def property(self, name: str, *, unit: str = UNIT) -> str:
        """Return what systemd says about a unit."""
        return self.machine.output(f"systemctl show -P {name} {shlex.quote(unit)}")

    def apply(self, manifest: Mapping[str, Any]) -> None:
        """Put a static pod in place."""
        self.machine.write(f"{MANIFESTS}/{manifest['metadata']['name']}.json", json.dumps(manifest))

    def withdraw(self, name: str) -> None:
        self.machine.run(f"rm {MANIFESTS}/{shlex.quote(name)}.json")

    def pods(self) -> dict[str, Pod]:
        """Return the agent's pods by the names in their manifests; raises MachineFailed if it does not answer."""
        answer = self.machine.output(f"curl -fsS --max-time 20 http://127.0.0.1:{_PORT}/pods")
        pods = decode(PodList, answer.encode()).items or ()
        return {pod.metadata.name.removesuffix(f"-{HOST_NAME}"): pod for pod in pods}

    def until(self, condition: Callable[[dict[str, Pod]], object], *, what: str, patience: float = PATIENCE) -> None:
        """Wait for a state of the pods; raises MachineFailed with what the agent logged."""
        give_up = time.monotonic() + patience
        found = "no answer"
        while time.monotonic() < give_up:
            with suppress(CommandFailed):  # the agent is starting
                pods = self.pods()
                if condition(pods):
                    return
                found = str({name: pod.status.phase for name, pod in pods.items()})
            time.sleep(_POLL)
        raise MachineFailed(f"{what}: never came; the pods are {found}\n{self.log()}")

    def until_running(self, *names: str, restarts: int | None = None, patience: float = PATIENCE) -> dict[str, Pod]:
        """Wait until all containers of these pods are ready, if asked for after so many restarts; return the pods."""
        self.until(
            lambda pods: all(name in pods and is_ready(pods[name], restarts) for name in names),
            what=f"{', '.join(names)} ready{'' if restarts is None else f' after {restarts} restarts'}",
            patience=patience,
        )
        return self.pods()

    def until_true(self, command: str, *, patience: float = PATIENCE) -> str:
        """Wait until a shell command succeeds; return its output. Raises MachineFailed."""
        give_up = time.monotonic() + patience
        while (result := self.machine.run(command, check=False)).code:
            if time.monotonic() > give_up:
                raise MachineFailed(f"{command}: {result.output}{result.errors}\n{self.log()}")
            time.sleep(_POLL)
        return result.output.strip()


def is_ready(pod: Pod, restarts: int | None = None) -> bool:
    statuses = pod.status.container_statuses or ()
    return bool(statuses) and all(
        status.ready and (restarts is None or status.restart_count == restarts) for status in statuses
    )


def build_pod(name: str, *, command: str = "exec sleep 100000", **container: object) -> dict[str, Any]:
    """Return a static pod of one container that runs a shell command.

    Each has a UID of its own, which comes from the manifest: one that was removed is not taken for the next.
    """
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": {"test": secrets.token_hex(8)}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": BUSYBOX_IMAGE, "command": ["sh", "-c", command], **container}],
        },
    }


def _configuration() -> dict[str, Any]:
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": CRI,
        "cgroupDriver": "systemd",
        "staticPodPath": MANIFESTS,
        "fileCheckFrequency": "1s",
        "readOnlyPort": _PORT,
        "address": "127.0.0.1",
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        # A machine for tests may be short of anything, and that is not what is tested.
        "evictionHard": {"memory.available": "1Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
        "imageGCHighThresholdPercent": 100,
    }
