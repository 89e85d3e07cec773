"""Kernel parameters that a node needs: set at the start, or only asked for with protectKernelDefaults (upstream:
`setupKernelTunables`).
"""

import logging
from collections.abc import Mapping
from enum import Enum, auto
from typing import Final, Protocol

from msgspec import Struct

from klet.errors import KletError
from klet.host.errors import HostError
from klet.model.error_text import join_errors

logger = logging.getLogger(__name__)

TUNABLES: Final[Mapping[str, int]] = {
    "vm.overcommit_memory": 1,
    "vm.panic_on_oom": 0,
    "kernel.panic": 10,
    "kernel.panic_on_oops": 1,
    "kernel.keys.root_maxkeys": 1_000_000,
    "kernel.keys.root_maxbytes": 25_000_000,
}

_HINT: Final = "enable KubeletInUserNamespace feature flag to ignore the error"


class TunablePolicy(Enum):
    """What to do with parameters that are not as they should be."""

    SET = auto()
    REFUSE = auto()
    LEAVE = auto()


class WriteFailure(Enum):
    """What a parameter that cannot be written means."""

    FATAL = auto()
    FATAL_WITH_HINT = auto()
    """In a user namespace nothing else is to be expected, and a gate lets the agent go on."""
    IGNORED = auto()


class TunableError(KletError):
    """Parameters that are wrong, or cannot be set."""


class Parameters(Protocol):
    """Kernel parameters; raises HostError."""

    def read(self, name: str) -> int: ...

    def write(self, name: str, value: int) -> None: ...


class TunablePlan(Struct, frozen=True):
    """What to write, and what is wrong."""

    writes: Mapping[str, int]
    problems: tuple[str, ...] = ()


def choose_tunable_policy(*, protect: bool, leave: bool) -> TunablePolicy:
    """Return which of the two settings wins: protectKernelDefaults, as wrong values must then be an error."""
    if protect:
        return TunablePolicy.REFUSE
    return TunablePolicy.LEAVE if leave else TunablePolicy.SET


def choose_write_failure(*, in_user_namespace: bool, is_ignored: bool) -> WriteFailure:
    """Return what a failure means; `is_ignored` is the gate KubeletInUserNamespace, which counts there alone."""
    if not in_user_namespace:
        return WriteFailure.FATAL
    return WriteFailure.IGNORED if is_ignored else WriteFailure.FATAL_WITH_HINT


def plan_tunables(found: Mapping[str, int], policy: TunablePolicy) -> TunablePlan:
    """Compare what was found with what is needed."""
    wrong = {name: value for name, value in TUNABLES.items() if name in found and found[name] != value}
    match policy:
        case TunablePolicy.SET:
            return TunablePlan(wrong)
        case TunablePolicy.LEAVE:
            return TunablePlan({})
        case TunablePolicy.REFUSE:
            problems = tuple(
                f"invalid kernel flag: {name}, expected value: {value}, actual value: {found[name]}"
                for name, value in wrong.items()
            )
            return TunablePlan({}, problems)


def apply_tunables(
    parameters: Parameters, policy: TunablePolicy, *, on_failure: WriteFailure = WriteFailure.FATAL
) -> None:
    """Make the parameters right, or raise TunableError with everything that is wrong."""
    if policy is TunablePolicy.LEAVE:
        return
    problems: list[str] = []
    found: dict[str, int] = {}
    for name in TUNABLES:
        try:
            found[name] = parameters.read(name)
        except HostError as error:
            problems.append(str(error))
    plan = plan_tunables(found, policy)
    for name, value in plan.writes.items():
        logger.info("Updating kernel flag", extra={"flag": name, "value": value, "before": found[name]})
        try:
            parameters.write(name, value)
        except HostError as error:
            problems += _judge_failure(name, str(error), on_failure)
    if problems := [*problems, *plan.problems]:
        raise TunableError(join_errors(problems))


def _judge_failure(name: str, error: str, on_failure: WriteFailure) -> list[str]:
    """Log a parameter that cannot be written; return the problem, if it is one."""
    extra = {"flag": name, "error": error}
    match on_failure:
        case WriteFailure.IGNORED:
            logger.info("Updating kernel flag failed (running in UserNS, ignoring)", extra=extra)
            return []
        case WriteFailure.FATAL_WITH_HINT:
            logger.error("Updating kernel flag failed", extra={**extra, "hint": _HINT})
        case WriteFailure.FATAL:
            pass
    return [error]
