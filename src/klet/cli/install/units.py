"""The texts of the units and of the `kubelet` program that `klet install` writes; pure."""

import hashlib
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from klet.cli.node.paths import NodeNames

REVISION: Final = "KLET_REVISION"
"""The variable of a unit that changes when what runs has to be restarted, also if the unit's commands are the same."""
KUBELET_UNIT: Final = "kubelet.service"

_BARE: Final = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")


class NodeUnits(Struct, frozen=True):
    """The units of one node, in starting order."""

    containerd: str
    agent: str

    @property
    def all(self) -> tuple[str, str]:
        return self.containerd, self.agent


class UnitSettings(Struct, frozen=True, kw_only=True):
    """What the units of one node are built from."""

    state: Path
    units: NodeUnits
    program: tuple[str, ...]
    """The command that runs klet."""
    containerd: tuple[str, ...]
    """The command that runs containerd."""
    agent: tuple[str, ...]
    """The flags of `klet run`."""
    search_path: str
    revision: str = ""


def node_units(names: NodeNames) -> NodeUnits:
    """Return the units of a node; those of another state directory have its tag."""
    stem = f"klet-{names.tag}" if names.tag else "klet"
    return NodeUnits(containerd=f"{stem}-containerd.service", agent=f"{stem}.service")


def build_containerd_unit(settings: UnitSettings, *, configuration: Iterable[str]) -> str:
    """Return the unit of the private containerd; what it is configured with makes its revision."""
    return _with_revision(_containerd_unit, settings, configuration)


def build_agent_unit(settings: UnitSettings, *, configuration: Iterable[str]) -> str:
    """Return the unit of the agent; what it is configured with makes its revision."""
    return _with_revision(_agent_unit, settings, configuration)


def read_revision(unit: str) -> str:
    """Return the revision in the text of a unit, or of the program `kubelet`."""
    found = re.search(rf"^(?:Environment=|export ){REVISION}=(\w+)$", unit, re.MULTILINE)
    return found[1] if found else ""


def build_kubelet_unit() -> str:
    """Return `kubelet.service` as in upstream's packages: without Type=notify, so that kubeadm never waits for it."""
    return """\
[Unit]
Description=kubelet: The Kubernetes Node Agent (klet)
Wants=network-online.target
After=network-online.target

[Service]
ExecStart=/usr/bin/kubelet
Restart=always
StartLimitInterval=0
RestartSec=10

[Install]
WantedBy=multi-user.target
"""


def build_kubeadm_drop_in() -> str:
    """Return kubeadm's part of `kubelet.service`, with the files that its packages name."""
    kubeconfig = (
        "--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf"
    )
    return f"""\
[Service]
Environment="KUBELET_KUBECONFIG_ARGS={kubeconfig}"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
# Written by kubeadm init and kubeadm join: KUBELET_KUBEADM_ARGS.
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
# The machine's own: KUBELET_EXTRA_ARGS.
EnvironmentFile=-/etc/default/kubelet
EnvironmentFile=-/etc/sysconfig/kubelet
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
"""


def build_kubelet_program(program: Sequence[str], *, configuration: Iterable[str] = ()) -> str:
    """Return the program `kubelet`, which is `klet run`; what else it depends on makes its revision."""
    command = f'exec {shlex.join(program)} run "$@"'
    revision = _digest(command, *configuration)
    return f"#!/bin/sh\nexport {REVISION}={revision}\n{command}\n"


def quote_words(words: Sequence[str]) -> str:
    """Return a command as a unit writes it: systemd expands %, quotes, and, but for the first word, $."""
    first, *rest = words
    return " ".join([_quote(first), *(_quote(word.replace("$", "$$")) for word in rest)])


def _containerd_unit(settings: UnitSettings) -> str:
    state = f"--state-dir={settings.state}"
    return f"""\
[Unit]
Description=containerd of the klet node in {_line(settings.state)}
Wants=network-online.target
After=network-online.target
RequiresMountsFor={_quote(str(settings.state))}
StartLimitIntervalSec=0

[Service]
Type=notify
{_environment(settings, settings.units.containerd)}
# At each start, for a reboot clears /run: directories, forwarding, configuration.
ExecStartPre={quote_words((*settings.program, "boot", "prepare", state))}
ExecStart={quote_words(settings.containerd)}
ExecStartPost={quote_words((*settings.program, "boot", "images", state))}
Restart=always
RestartSec=5s
TimeoutStartSec=5min
# Containers and their shims outlive a restart of containerd.
KillMode=process
{_LIMITS}
LimitCORE=infinity

[Install]
WantedBy=multi-user.target
"""


def _agent_unit(settings: UnitSettings) -> str:
    command = quote_words((*settings.program, "run", *settings.agent))
    return f"""\
[Unit]
Description=Agent of the klet node in {_line(settings.state)}
# Not Requires=: a containerd that starts at its second try would leave the agent stopped, and a restart would reach it.
Wants=network-online.target {settings.units.containerd}
After=network-online.target {settings.units.containerd}
RequiresMountsFor={_quote(str(settings.state))}
StartLimitIntervalSec=0

[Service]
Type=notify
Environment=KLET_EXTRA_ARGS=
{_environment(settings, settings.units.agent)}
ExecStart={command} $KLET_EXTRA_ARGS
Restart=always
RestartSec=2s
TimeoutStartSec=5min
WatchdogSec=60s
# What serves a volume of a pod outlives a restart of the agent.
KillMode=process
{_LIMITS}

[Install]
WantedBy=multi-user.target
"""


_LIMITS: Final = """\
Delegate=yes
OOMScoreAdjust=-999
LimitNOFILE=1048576
LimitNPROC=infinity
TasksMax=infinity"""


def _environment(settings: UnitSettings, unit: str) -> str:
    lines = [
        f"Environment={_quote(f'PATH={settings.search_path}')}",
        f"Environment={REVISION}={settings.revision}",
        f"EnvironmentFile=-/etc/default/{unit.removesuffix('.service')}",
    ]
    return "\n".join(lines)


def _with_revision(build: Callable[[UnitSettings], str], settings: UnitSettings, configuration: Iterable[str]) -> str:
    return build(replace(settings, revision=_digest(build(settings), *configuration)))


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:16]


def _quote(word: str) -> str:
    escaped = _escape(word)
    if _BARE.fullmatch(escaped):
        return escaped
    text = escaped.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{text}"'


def _escape(text: str) -> str:
    """Return the text without specifiers."""
    return text.replace("%", "%%")


def _line(path: Path) -> str:
    """Return a path as a text for readers: a backslash at the end would join the next line to it."""
    shown = str(path)
    return _escape(f"{shown}/" if shown.endswith("\\") else shown)
