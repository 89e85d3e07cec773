import pytest

from klet.config.errors import ConfigError
from klet.config.gates import KNOWN_GATES, Maturity, describe_ageing_gates, describe_gates, resolve_gates


def test_all_alpha_moves_every_alpha_gate_that_is_not_named():
    gates = resolve_gates({"AllAlpha": True, "EventedPLEG": False})
    alpha = {gate.name for gate in KNOWN_GATES.values() if gate.stage is Maturity.ALPHA}
    assert {name for name in alpha if not gates.enabled(name)} == {"EventedPLEG"}
    assert not gates.enabled("NodeLogQuery")


def test_all_beta_moves_every_beta_gate_that_is_not_named():
    gates = resolve_gates({"AllBeta": False, "KubeletPSI": True})
    beta = {gate.name for gate in KNOWN_GATES.values() if gate.stage is Maturity.BETA}
    assert {name for name in beta if gates.enabled(name)} == {"KubeletPSI"}
    assert gates.enabled("NodeSwap")


def test_a_locked_gate_may_be_set_to_what_it_is():
    assert resolve_gates({"NodeSwap": True}).enabled("NodeSwap")


def test_asking_for_an_unknown_gate_is_a_mistake_in_klet():
    with pytest.raises(KeyError):
        resolve_gates({}).enabled("Nonsense")


def test_problems_are_reported_together():
    with pytest.raises(ConfigError) as caught:
        resolve_gates({"Nonsense": True, "NodeSwap": False})
    assert str(caught.value) == (
        "[cannot set feature gate NodeSwap to false, feature is locked to true, unrecognized feature gate: Nonsense]"
    )


@pytest.mark.parametrize(
    ("overrides", "problems"),
    [
        pytest.param(
            {"ProcMountType": True, "UserNamespacesSupport": False},
            "ProcMountType is enabled, but depends on features that are disabled: [UserNamespacesSupport]",
            id="what was switched on needs what was switched off",
        ),
        pytest.param(
            {"UserNamespacesSupport": False},
            "ProcMountType is enabled, but depends on features that are disabled: [UserNamespacesSupport]",
            id="what is on by default counts too",
        ),
        pytest.param(
            {"RestartAllContainersOnContainerExits": True, "ContainerRestartRules": False},
            "RestartAllContainersOnContainerExits is enabled, but depends on features that are disabled: "
            "[ContainerRestartRules NodeDeclaredFeatures]",
            id="all that is missing is named",
        ),
        pytest.param(
            {"GracefulNodeShutdown": False},
            "[GracefulNodeShutdownBasedOnPodPriority is enabled, but depends on features that are disabled: "
            "[GracefulNodeShutdown], WindowsGracefulNodeShutdown is enabled, but depends on features that are "
            "disabled: [GracefulNodeShutdown]]",
            id="each that needs it is named",
        ),
        pytest.param(
            {"AllBeta": False, "RestartAllContainersOnContainerExits": True, "NodeDeclaredFeatures": True},
            "RestartAllContainersOnContainerExits is enabled, but depends on features that are disabled: "
            "[ContainerRestartRules]",
            id="groups count",
        ),
        pytest.param(
            {"UserNamespacesSupport": False, "Nonsense": True},
            "unrecognized feature gate: Nonsense",
            id="dependencies are checked only if everything else is right",
        ),
    ],
)
def test_a_gate_needs_the_gates_it_depends_on(overrides, problems):
    with pytest.raises(ConfigError) as caught:
        resolve_gates(overrides)
    assert str(caught.value) == problems


@pytest.mark.parametrize(
    "overrides",
    [
        pytest.param({"UserNamespacesSupport": False, "ProcMountType": False}, id="both off"),
        pytest.param({"RestartAllContainersOnContainerExits": True, "NodeDeclaredFeatures": True}, id="both on"),
        pytest.param({"AllAlpha": True}, id="all alpha"),
        pytest.param({"AllBeta": True}, id="all beta"),
        pytest.param({"AllBeta": False}, id="no beta"),
    ],
)
def test_what_has_all_it_needs_is_fine(overrides):
    gates = resolve_gates(overrides)
    assert all(gates.enabled(name) == value for name, value in overrides.items())


@pytest.mark.parametrize("gate", [gate for gate in KNOWN_GATES.values() if gate.locked], ids=lambda gate: gate.name)
def test_a_locked_gate_does_not_move(gate):
    with pytest.raises(ConfigError, match=f"cannot set feature gate {gate.name} to .*, feature is locked to"):
        resolve_gates({gate.name: not gate.default})


def test_gates_of_other_components_are_accepted():
    assert resolve_gates({"SchedulerAsyncPreemption": False}).enabled("SchedulerAsyncPreemption") is False


def test_ageing_gates_are_reported():
    assert describe_ageing_gates({"NodeSwap": True, "GitRepoVolumeDriver": True, "EventedPLEG": True}) == (
        "Setting deprecated feature gate GitRepoVolumeDriver=true. It will be removed in a future release.",
        "Setting GA feature gate NodeSwap=true. It will be removed in a future release.",
    )


def test_the_help_text_has_alpha_and_beta_gates_in_order():
    lines = describe_gates()
    assert list(lines) == sorted(lines)
    assert "EventedPLEG=true|false (ALPHA - default=false)" in lines
    assert "KubeletPSI=true|false (BETA - default=true)" in lines
    assert not any(line.startswith("NodeSwap=") for line in lines)
