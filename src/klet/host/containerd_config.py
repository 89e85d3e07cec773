"""The configuration file of a private containerd: everything it keeps lies under given directories."""

import json
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

PAUSE_IMAGE = "klet.local/pause:1"


class ContainerdSettings(Struct, frozen=True, kw_only=True):
    """What one containerd daemon needs to know."""

    root: Path
    state: Path
    socket: Path
    cni_conf_dir: Path
    cni_bin_dir: Path
    sandbox_image: str = PAUSE_IMAGE
    snapshotter: str = "overlayfs"
    """`native` where overlayfs cannot be mounted."""
    systemd_cgroup: bool = False
    restrict_oom_score_adj: bool = False
    """Needed without CAP_SYS_RESOURCE, where no process may lower its score."""
    registry_dir: Path | None = None
    """Host directories with the mirrors and certificates of registries (certs.d)."""
    stats_period: int = 10
    """Seconds between two looks at the disk usage of snapshots."""
    runtimes: Mapping[str, str] | None = None
    """Binary by handler name beyond the default `runc`, such as {"crun": "/usr/bin/crun"}."""
    disabled_plugins: tuple[str, ...] = ()
    """More of them than klet's own choice."""
    runtime_root: Path | None = None
    """Where the runtimes keep the state of containers; all daemons of a machine share one place otherwise."""


def build_containerd_config(settings: ContainerdSettings) -> str:
    """Return config.toml in version 2, which containerd 1.6 and every newer release reads."""
    sections: dict[str, Mapping[str, _Value]] = {
        "": {
            "version": 2,
            "root": str(settings.root),
            "state": str(settings.state),
            "oom_score": 0,
            "disabled_plugins": (*_DISABLED, *settings.disabled_plugins),
        },
        "grpc": {"address": str(settings.socket)},
        _CRI: {
            "sandbox_image": settings.sandbox_image,
            "disable_tcp_service": True,
            "stream_server_address": "127.0.0.1",
            "stream_server_port": "0",
            "restrict_oom_score_adj": settings.restrict_oom_score_adj,
            "netns_mounts_under_state_dir": True,
            "stats_collect_period": settings.stats_period,
        },
        f"{_CRI}.cni": {"bin_dir": str(settings.cni_bin_dir), "conf_dir": str(settings.cni_conf_dir)},
        f"{_CRI}.containerd": {"snapshotter": settings.snapshotter, "default_runtime_name": "runc"},
        **_runtime("runc", "", settings),
    }
    for handler, binary in sorted((settings.runtimes or {}).items()):
        sections |= _runtime(handler, binary, settings)
    if settings.registry_dir is not None:
        sections[f"{_CRI}.registry"] = {"config_path": str(settings.registry_dir)}
    return "\n".join(_section(name, values) for name, values in sections.items())


_Value = str | int | bool | tuple[str, ...]

_CRI = 'plugins."io.containerd.grpc.v1.cri"'

# Snapshotters that need another disk, and plugins that write outside the given directories or wake up for nothing.
_DISABLED = (
    "io.containerd.internal.v1.opt",
    "io.containerd.internal.v1.restart",
    "io.containerd.snapshotter.v1.aufs",
    "io.containerd.snapshotter.v1.btrfs",
    "io.containerd.snapshotter.v1.devmapper",
    "io.containerd.snapshotter.v1.zfs",
    "io.containerd.tracing.processor.v1.otlp",
)


def _runtime(handler: str, binary: str, settings: ContainerdSettings) -> dict[str, Mapping[str, _Value]]:
    name = f"{_CRI}.containerd.runtimes.{json.dumps(handler)}"
    options: dict[str, _Value] = {"BinaryName": binary, "SystemdCgroup": settings.systemd_cgroup}
    if settings.runtime_root is not None:
        options["Root"] = str(settings.runtime_root)
    return {name: {"runtime_type": "io.containerd.runc.v2"}, f"{name}.options": options}


def _section(name: str, values: Mapping[str, _Value]) -> str:
    lines = [f"[{name}]"] if name else []
    # JSON's scalars and arrays of strings are TOML as well.
    lines += [f"{key} = {json.dumps(value)}" for key, value in values.items()]
    return "\n".join(lines) + "\n"
