import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace

from klet.cli.install.units import (
    UnitSettings,
    build_agent_unit,
    build_containerd_unit,
    build_kubeadm_drop_in,
    build_kubelet_program,
    build_kubelet_unit,
    node_units,
    quote_words,
    read_revision,
)
from klet.cli.node.paths import node_names

STATE = Path("/var/lib/klet")
SETTINGS = UnitSettings(
    state=STATE,
    units=node_units(node_names(STATE)),
    program=("/opt/klet/bin/klet",),
    containerd=("/usr/bin/containerd", "--config", "/var/lib/klet/etc/containerd.toml"),
    agent=("--config=/var/lib/klet/etc/kubelet.yaml", "--root-dir=/var/lib/klet/kubelet"),
    search_path="/usr/sbin:/usr/bin",
)


def containerd(configuration=(), **changes):
    return build_containerd_unit(replace(SETTINGS, **changes), configuration=configuration)


def agent(configuration=(), **changes):
    return build_agent_unit(replace(SETTINGS, **changes), configuration=configuration)


def test_the_names_of_units():
    assert node_units(node_names(STATE)).all == ("klet-containerd.service", "klet.service")
    other = node_names(Path("/srv/klet"))
    assert node_units(other).all == (f"klet-{other.tag}-containerd.service", f"klet-{other.tag}.service")


@pytest.mark.parametrize(
    "line",
    [
        pytest.param("Type=notify", id="it is started once it says so"),
        pytest.param("Restart=always", id="it is started again"),
        pytest.param("StartLimitIntervalSec=0", id="as often as it takes"),
        pytest.param("KillMode=process", id="what it started outlives it"),
        pytest.param("Delegate=yes", id="its cgroups are its own"),
        pytest.param("OOMScoreAdjust=-999", id="it is killed last"),
        pytest.param("LimitNOFILE=1048576", id="it has files for many pods"),
        pytest.param("TasksMax=infinity", id="it has processes for many pods"),
        pytest.param("RequiresMountsFor=/var/lib/klet", id="the disk of its data is mounted first"),
        pytest.param("WantedBy=multi-user.target", id="it starts at boot"),
        pytest.param("Environment=PATH=/usr/sbin:/usr/bin", id="it finds its programs"),
    ],
)
def test_both_units(line):
    assert line in containerd().splitlines()
    assert line in agent().splitlines()


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(
            "ExecStartPre=/opt/klet/bin/klet boot prepare --state-dir=/var/lib/klet", id="what a reboot clears is made"
        ),
        pytest.param("ExecStart=/usr/bin/containerd --config /var/lib/klet/etc/containerd.toml", id="its own file"),
        pytest.param(
            "ExecStartPost=/opt/klet/bin/klet boot images --state-dir=/var/lib/klet", id="it has its images after it"
        ),
        pytest.param("EnvironmentFile=-/etc/default/klet-containerd", id="a proxy can be set"),
    ],
)
def test_the_unit_of_containerd(line):
    assert line in containerd().splitlines()


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(
            "ExecStart=/opt/klet/bin/klet run --config=/var/lib/klet/etc/kubelet.yaml "
            "--root-dir=/var/lib/klet/kubelet $KLET_EXTRA_ARGS",
            id="the agent with its flags and the user's",
        ),
        pytest.param("WatchdogSec=60s", id="one that hangs is restarted"),
        pytest.param("Wants=network-online.target klet-containerd.service", id="it brings containerd with it"),
        pytest.param("After=network-online.target klet-containerd.service", id="it starts after containerd"),
        pytest.param("EnvironmentFile=-/etc/default/klet", id="flags can be set"),
        pytest.param("Environment=KLET_EXTRA_ARGS=", id="systemd does not complain that there are none"),
    ],
)
def test_the_unit_of_the_agent(line):
    assert line in agent().splitlines()


def test_a_restart_of_containerd_does_not_reach_the_agent():
    assert not any(line.startswith(("Requires=", "BindsTo=", "PartOf=")) for line in agent().splitlines())


def test_run_files_outlive_a_stop():
    """RuntimeDirectory= would remove the state of running containers."""
    assert "RuntimeDirectory" not in containerd() + agent()


@pytest.mark.parametrize(
    ("first", "second", "is_same"),
    [
        pytest.param(agent(), agent(), True, id="nothing changed"),
        pytest.param(agent(["a"]), agent(["b"]), False, id="the configuration changed"),
        pytest.param(agent(["a", "b"]), agent(["ab"]), False, id="something moved from one file to another"),
        pytest.param(agent(), agent(program=("/usr/bin/klet",)), False, id="the program changed"),
        pytest.param(containerd(), containerd(search_path="/opt/bin"), False, id="the environment changed"),
    ],
)
def test_the_revision_changes_with_what_runs(first, second, is_same):
    assert len(read_revision(first)) == 16
    assert (read_revision(first) == read_revision(second)) is is_same


def test_a_unit_without_a_revision():
    assert read_revision(build_kubelet_unit()) == ""


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param(("/bin/x", "--a=b"), "/bin/x --a=b", id="nothing to quote"),
        pytest.param(("/bin/x", "a b"), '/bin/x "a b"', id="a space"),
        pytest.param(("/bin/x", "50%"), "/bin/x 50%%", id="a specifier"),
        pytest.param(("/bin/x", "$HOME"), '/bin/x "$$HOME"', id="a variable"),
        pytest.param(("/my $x/y", "a"), '"/my $x/y" a', id="the program is not expanded"),
        pytest.param(("/bin/x", 'a"b\\c'), '/bin/x "a\\"b\\\\c"', id="a quote and a backslash"),
        pytest.param(("/bin/x", "a\nb"), '/bin/x "a\\nb"', id="a line break stays in its line"),
        pytest.param(("/bin/x", ""), '/bin/x ""', id="an empty word"),
        pytest.param(("/bin/x", "a;b"), '/bin/x "a;b"', id="what separates commands"),
    ],
)
def test_quote_words(words, expected):
    assert quote_words(words) == expected


@pytest.mark.parametrize("build", [containerd, agent])
def test_a_backslash_at_the_end_of_the_state_directory_joins_no_lines(build):
    lines = build(state=Path("/srv/50%\\")).splitlines()
    assert not any(line.endswith("\\") for line in lines)
    assert 'RequiresMountsFor="/srv/50%%\\\\"' in lines


def test_the_kubelet_is_started_as_by_upstreams_packages():
    drop_in = build_kubeadm_drop_in().splitlines()
    expected = "$KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS"
    assert drop_in[-2:] == ["ExecStart=", f"ExecStart=/usr/bin/kubelet {expected}"]
    for file in ("/var/lib/kubelet/kubeadm-flags.env", "/etc/default/kubelet", "/etc/sysconfig/kubelet"):
        assert f"EnvironmentFile=-{file}" in drop_in
    assert "--kubeconfig=/etc/kubernetes/kubelet.conf" in build_kubeadm_drop_in()
    assert "--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf" in build_kubeadm_drop_in()
    assert "--config=/var/lib/kubelet/config.yaml" in build_kubeadm_drop_in()


def test_kubeadm_does_not_wait_in_systemctl_for_a_certificate():
    assert "Type=" not in build_kubelet_unit() + build_kubeadm_drop_in()


def test_the_program_kubelet_is_klet_run(tmp_path):
    program = tmp_path / "kubelet"
    program.write_text(build_kubelet_program(["/bin/echo", "it's klet"]))
    program.chmod(0o755)
    answer = subprocess.run([program, "--a", "b c"], capture_output=True, text=True, check=True)
    assert answer.stdout == "it's klet run --a b c\n"


@pytest.mark.parametrize("change", [{"configuration": ["2"]}, {"program": ["/opt/klet"]}])
def test_the_revision_of_the_program_kubelet_is_in_its_environment(tmp_path, change):
    text = build_kubelet_program(["/usr/bin/env"], configuration=["1"])
    assert len(read_revision(text)) == 16
    assert read_revision(text) != read_revision(build_kubelet_program(**{"program": ["/usr/bin/env"], **change}))
    program = tmp_path / "kubelet"
    program.write_text(text.replace(" run ", " "))
    program.chmod(0o755)
    answer = subprocess.run([program], capture_output=True, text=True, check=True)
    assert f"KLET_REVISION={read_revision(text)}" in answer.stdout.splitlines()
