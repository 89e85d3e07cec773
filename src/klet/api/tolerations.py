"""Whether tolerations put up with taints (upstream: component-helpers' v1.Toleration and taint functions)."""

from collections.abc import Collection, Iterable

from klet.api.placement import Taint, Toleration
from klet.api.selectors import parse_int64
from klet.api.validation.formats import decimal_integer


def tolerates(toleration: Toleration, taint: Taint, *, comparisons: bool = False) -> bool:
    """Return whether one toleration covers one taint.

    `comparisons` is the gate TaintTolerationComparisonOperators: with it, Gt and Lt compare the taint's number with
    the toleration's.
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case "Gt" | "Lt" if comparisons:
            bound, actual = _parse_compared(toleration.value), _parse_compared(taint.value)
            if bound is None or actual is None:
                return False
            return actual > bound if toleration.operator == "Gt" else actual < bound
        case _:
            return False


def _parse_compared(text: str) -> int | None:
    """Return a number of 64 bits in its canonical form; what is written otherwise is compared with nothing."""
    return None if decimal_integer(text) else parse_int64(text)


def find_untolerated(
    taints: Iterable[Taint],
    tolerations: Collection[Toleration],
    *,
    effects: Collection[str],
    comparisons: bool = False,
) -> Taint | None:
    """Return the first taint with one of the effects that no toleration covers."""
    for taint in taints:
        if taint.effect in effects and not any(tolerates(each, taint, comparisons=comparisons) for each in tolerations):
            return taint
    return None
