"""Signals as the API and the CRI name them."""

import pytest
from msgspec.structs import replace

from klet.api.handlers import Lifecycle
from klet.api.validation.handlers import LINUX_SIGNALS
from klet.runtime.stop_signals import read_stop_signal, wanted_stop_signal
from klet.testing.builders import make_container
from klet.wire import cri_v1_pb2 as cri


def stopped_by(signal: str | None):
    return replace(make_container("main"), lifecycle=Lifecycle(stop_signal=signal))


@pytest.mark.parametrize("signal", LINUX_SIGNALS)
def test_every_signal_that_a_container_may_choose_is_known_to_the_runtime(signal):
    config = cri.ContainerConfig(stop_signal=wanted_stop_signal(stopped_by(signal)))
    assert config.stop_signal != cri.RUNTIME_DEFAULT
    assert read_stop_signal(cri.ContainerStatus(stop_signal=config.stop_signal)) == signal


@pytest.mark.parametrize(
    ("signal", "number"),
    [
        pytest.param("SIGTERM", cri.SIGTERM, id="a plain name"),
        pytest.param("SIGRTMIN+3", cri.SIGRTMINPLUS3, id="counted from the lowest"),
        pytest.param("SIGRTMAX-14", cri.SIGRTMAXMINUS14, id="counted from the highest"),
        pytest.param("SIGNOTHING", cri.RUNTIME_DEFAULT, id="one that does not exist"),
        pytest.param(None, cri.RUNTIME_DEFAULT, id="none"),
    ],
)
def test_the_signal_that_a_container_asks_for(signal, number):
    assert cri.ContainerConfig(stop_signal=wanted_stop_signal(stopped_by(signal))).stop_signal == number


def test_a_container_without_a_lifecycle_asks_for_none():
    assert wanted_stop_signal(make_container("main")) == "RUNTIME_DEFAULT"


@pytest.mark.parametrize("number", [cri.RUNTIME_DEFAULT, 999], ids=["not reported", "a signal of a later version"])
def test_what_is_not_reported_is_not_shown(number):
    assert read_stop_signal(cri.ContainerStatus(stop_signal=number)) == ""
