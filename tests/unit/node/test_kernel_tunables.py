"""Kernel parameters that a node needs."""

import pytest

from klet.host.errors import HostError
from klet.host.sysctls import Sysctls
from klet.node.kernel_tunables import (
    TUNABLES,
    TunableError,
    TunablePlan,
    TunablePolicy,
    WriteFailure,
    apply_tunables,
    choose_tunable_policy,
    choose_write_failure,
    plan_tunables,
)

WRONG = {**TUNABLES, "kernel.panic": 0, "vm.overcommit_memory": 2}


@pytest.mark.parametrize(
    ("found", "policy", "plan"),
    [
        pytest.param(TUNABLES, TunablePolicy.REFUSE, TunablePlan({}), id="all are right"),
        pytest.param(WRONG, TunablePolicy.SET, TunablePlan({"vm.overcommit_memory": 1, "kernel.panic": 10}),
                     id="wrong ones are set"),
        pytest.param(WRONG, TunablePolicy.LEAVE, TunablePlan({}), id="wrong ones are left"),
        pytest.param(WRONG, TunablePolicy.REFUSE, TunablePlan({}, (
            "invalid kernel flag: vm.overcommit_memory, expected value: 1, actual value: 2",
            "invalid kernel flag: kernel.panic, expected value: 10, actual value: 0",
        )), id="wrong ones are refused"),
        pytest.param({}, TunablePolicy.SET, TunablePlan({}), id="what could not be read is not written"),
    ],
)  # fmt: skip
def test_plan_tunables(found, policy, plan):
    assert plan_tunables(found, policy) == plan


@pytest.mark.parametrize(
    ("protect", "leave", "policy"),
    [
        pytest.param(False, False, TunablePolicy.SET, id="as upstream does"),
        pytest.param(False, True, TunablePolicy.LEAVE, id="a machine that is not only a node"),
        pytest.param(True, False, TunablePolicy.REFUSE, id="protectKernelDefaults"),
        pytest.param(True, True, TunablePolicy.REFUSE, id="both"),
    ],
)
def test_choose_tunable_policy(protect, leave, policy):
    assert choose_tunable_policy(protect=protect, leave=leave) is policy


@pytest.fixture
def sys(tmp_path):
    for name, value in WRONG.items():
        path = tmp_path / name.replace(".", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")
    return tmp_path


def test_parameters_are_set(sys):
    parameters = Sysctls(root=sys)
    apply_tunables(parameters, TunablePolicy.SET)
    assert {name: parameters.read(name) for name in TUNABLES} == TUNABLES
    apply_tunables(parameters, TunablePolicy.REFUSE)


def test_nothing_is_touched_when_they_are_left(tmp_path):
    apply_tunables(Sysctls(root=tmp_path), TunablePolicy.LEAVE)


def test_everything_that_is_wrong_is_reported(sys):
    (sys / "kernel/keys/root_maxkeys").unlink()
    with pytest.raises(TunableError) as caught:
        apply_tunables(Sysctls(root=sys), TunablePolicy.REFUSE)
    assert str(caught.value).startswith("[cannot read")
    assert "invalid kernel flag: kernel.panic, expected value: 10, actual value: 0" in str(caught.value)


class ReadOnly:
    def read(self, name):
        return WRONG[name]

    def write(self, name, _value):
        raise HostError(f"cannot write {name}: Read-only file system")


def test_parameters_that_cannot_be_set():
    with pytest.raises(TunableError, match=r"cannot write vm\.overcommit_memory: Read-only"):
        apply_tunables(ReadOnly(), TunablePolicy.SET)


@pytest.mark.parametrize(
    ("in_user_namespace", "is_ignored", "rule"),
    [
        pytest.param(False, False, WriteFailure.FATAL, id="an ordinary node"),
        pytest.param(False, True, WriteFailure.FATAL, id="the gate counts in a user namespace alone"),
        pytest.param(True, False, WriteFailure.FATAL_WITH_HINT, id="rootless without the gate"),
        pytest.param(True, True, WriteFailure.IGNORED, id="rootless with the gate"),
    ],
)
def test_choose_write_failure(in_user_namespace, is_ignored, rule):
    assert choose_write_failure(in_user_namespace=in_user_namespace, is_ignored=is_ignored) is rule


def test_a_rootless_node_with_the_gate_goes_on(caplog):
    with caplog.at_level("INFO"):
        apply_tunables(ReadOnly(), TunablePolicy.SET, on_failure=WriteFailure.IGNORED)
    ignored = [each for each in caplog.messages if each == "Updating kernel flag failed (running in UserNS, ignoring)"]
    assert len(ignored) == 2


def test_a_rootless_node_without_the_gate_learns_of_it(caplog):
    with pytest.raises(TunableError, match="cannot write kernel"):
        apply_tunables(ReadOnly(), TunablePolicy.SET, on_failure=WriteFailure.FATAL_WITH_HINT)
    assert {each.hint for each in caplog.records} == {"enable KubeletInUserNamespace feature flag to ignore the error"}


def test_a_gate_does_not_excuse_protected_values():
    with pytest.raises(TunableError, match="invalid kernel flag"):
        apply_tunables(ReadOnly(), TunablePolicy.REFUSE, on_failure=WriteFailure.IGNORED)


def test_a_parameter_that_is_no_number(tmp_path):
    (tmp_path / "odd").write_text("often\n")
    with pytest.raises(HostError, match="kernel parameter odd is 'often', expected a whole number"):
        Sysctls(root=tmp_path).read("odd")
