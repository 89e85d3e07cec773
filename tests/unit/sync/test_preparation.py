from datetime import timedelta

import pytest

from klet.api.pod import PodStatus
from klet.metrics import MetricRegistry
from klet.model.pods import uid_of
from klet.model.runtime import PodRuntimeStatus
from klet.model.stopping_pods import PodStopping, StoppingPods
from klet.sync.metrics import register_preparation
from klet.sync.preparation import Preparation, PreparationStep, StepIncomplete, Stopped, SyncedPod
from klet.sync.requeue import StepFailure
from klet.testing.builders import make_pod
from klet.testing.clock import ManualClock

MEASURED = {"durations": register_preparation(MetricRegistry()), "clock": ManualClock()}
POD = make_pod()
WAITS = StepIncomplete(StepFailure.NETWORK_NOT_READY)


class Step(PreparationStep):
    """Notes its calls in a list that all steps share."""

    def __init__(self, name, calls, *, kept=None, held=None, may_be_left_out=False):
        self._name = name
        self._calls = calls
        self._kept = kept
        self._held = held
        self.may_be_left_out = may_be_left_out

    async def keep(self, _synced):
        self._calls.append(f"keep {self._name}")
        return self._kept

    def refresh(self, _pod):
        self._calls.append(f"refresh {self._name}")

    async def prepare(self, _pod, **_cause):
        self._calls.append(f"prepare {self._name}")
        return self._held

    async def note_stop(self, _uid):
        self._calls.append(f"stop {self._name}")

    async def release(self, _pod):
        self._calls.append(f"release {self._name}")


def synced():
    status = PodRuntimeStatus(uid=uid_of(POD), name="p", namespace="default")
    return SyncedPod(POD, status, PodStatus(), None)


async def test_steps_have_their_order_and_give_back_in_reverse():
    calls = []
    steps = Preparation([Step("a", calls), Step("b", calls)], **MEASURED, stopping_pods=StoppingPods())
    assert await steps.keep(synced()) is None
    assert await steps.prepare(POD, cause=None) is None
    steps.refresh(POD)
    await steps.note_stop(uid_of(POD))
    await steps.release(POD)
    order = ("keep a", "keep b", "prepare a", "prepare b", "refresh a", "refresh b", "stop a", "stop b")
    assert calls == [*order, "release b", "release a"]


async def test_what_holds_a_pod_keeps_it_from_the_steps_behind():
    calls = []
    kept = Preparation([Step("a", calls, kept=WAITS), Step("b", calls)], **MEASURED, stopping_pods=StoppingPods())
    assert await kept.keep(synced()) is WAITS
    held = Preparation([Step("a", calls, held=WAITS), Step("b", calls)], **MEASURED, stopping_pods=StoppingPods())
    assert await held.prepare(POD, cause=None) is WAITS
    assert calls == ["keep a", "prepare a"]


async def test_a_pod_that_one_step_stopped_is_kept_by_the_others():
    calls = []
    steps = Preparation([Step("a", calls, kept=Stopped()), Step("b", calls)], **MEASURED, stopping_pods=StoppingPods())
    assert await steps.keep(synced()) == Stopped()
    assert calls == ["keep a", "keep b"]


async def test_a_pod_that_is_to_stop_is_spared_the_steps_that_may_be_left_out():
    calls, stopping_pods = [], StoppingPods()
    stopping_pods.mark(uid_of(POD))
    steps = Preparation(
        [Step("a", calls), Step("b", calls, may_be_left_out=True), Step("c", calls)],
        **MEASURED,
        stopping_pods=stopping_pods,
    )
    with pytest.raises(PodStopping):
        await steps.prepare(POD, cause=None)
    assert calls == ["prepare a"]


async def test_a_step_does_nothing_that_it_does_not_say():
    steps = Preparation([PreparationStep()], **MEASURED, stopping_pods=StoppingPods())
    assert await steps.keep(synced()) is None
    assert await steps.prepare(POD, cause=None) is None
    steps.refresh(POD)
    await steps.note_stop(None)
    await steps.release(POD)


async def test_how_long_each_step_takes_is_measured():
    registry, clock = MetricRegistry(), ManualClock()

    class Slow(PreparationStep):
        name = "volumes"

        async def prepare(self, pod, *, cause):
            assert (pod, cause) == (POD, None)
            clock.advance(timedelta(seconds=3))

    steps = Preparation([Slow()], stopping_pods=StoppingPods(), durations=register_preparation(registry), clock=clock)
    await steps.prepare(POD, cause=None)
    assert 'klet_pod_preparation_step_duration_seconds_sum{step="volumes"} 3' in registry.write().decode()
