import tomllib
from pathlib import Path

from klet.host.containerd_config import ContainerdSettings, build_containerd_config

DIRECTORIES = {
    "root": Path("/d/root"),
    "state": Path("/d/state"),
    "socket": Path("/d/c.sock"),
    "cni_conf_dir": Path("/d/net.d"),
    "cni_bin_dir": Path("/usr/lib/cni"),
}


def built(**settings):
    config = tomllib.loads(build_containerd_config(ContainerdSettings(**DIRECTORIES, **settings)))
    return config, config["plugins"]["io.containerd.grpc.v1.cri"]


def test_everything_lies_under_the_given_directories():
    config, cri = built()
    assert (config["version"], config["root"], config["state"]) == (2, "/d/root", "/d/state")
    assert config["grpc"]["address"] == "/d/c.sock"
    assert cri["cni"] == {"bin_dir": "/usr/lib/cni", "conf_dir": "/d/net.d"}
    assert cri["netns_mounts_under_state_dir"] is True


def test_defaults_are_runc_on_overlayfs_with_our_pause_image():
    _, cri = built()
    assert cri["sandbox_image"] == "klet.local/pause:1"
    assert cri["containerd"] == {
        "snapshotter": "overlayfs",
        "default_runtime_name": "runc",
        "runtimes": {
            "runc": {
                "runtime_type": "io.containerd.runc.v2",
                "options": {"BinaryName": "", "SystemdCgroup": False},
            }
        },
    }
    assert "registry" not in cri


def test_every_setting_reaches_the_file():
    config, cri = built(
        sandbox_image="example.com/pause:9",
        snapshotter="native",
        systemd_cgroup=True,
        restrict_oom_score_adj=True,
        registry_dir=Path('/d/certs "quoted".d'),
        stats_period=1,
        runtime_root=Path("/d/state/runc"),
        runtimes={"crun": "/usr/bin/crun"},
        disabled_plugins=("io.containerd.grpc.v1.events",),
    )
    assert config["disabled_plugins"][-1] == "io.containerd.grpc.v1.events"
    assert cri["sandbox_image"] == "example.com/pause:9"
    assert cri["restrict_oom_score_adj"] is True
    assert cri["stats_collect_period"] == 1
    assert cri["registry"] == {"config_path": '/d/certs "quoted".d'}
    assert cri["containerd"]["snapshotter"] == "native"
    options = {name: runtime["options"] for name, runtime in cri["containerd"]["runtimes"].items()}
    assert options == {
        "runc": {"BinaryName": "", "Root": "/d/state/runc", "SystemdCgroup": True},
        "crun": {"BinaryName": "/usr/bin/crun", "Root": "/d/state/runc", "SystemdCgroup": True},
    }
