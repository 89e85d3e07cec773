"""Metrics of one agent, in Prometheus' text format.

A registry is made once per agent and handed to the parts that count. Label values come from fixed sets, so that
no input from outside can create a new time series: what is not in the set is counted as `other`.

A metric that upstream has deprecated says so, and is hidden after a time that depends on its stability, unless
`showHiddenMetricsForVersion` shows it for one release more.
"""

import logging
import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import accumulate
from typing import Final, TypeAlias

from msgspec import Struct

from klet.version import KUBERNETES_VERSION, parse_release

logger = logging.getLogger(__name__)

OTHER: Final = "other"
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})

LabelValues: TypeAlias = tuple[str, ...]
Reading: TypeAlias = Mapping[LabelValues, float]


class Stability(Enum):
    """What upstream promises about a metric: for how many minor releases it is shown once it is deprecated."""

    ALPHA = 0
    BETA = 1
    STABLE = 3


class Deprecation(Struct, frozen=True):
    """Since which release a metric should not be used any more."""

    since: str
    """With its patch number, as upstream writes it: `1.34.0`."""
    stability: Stability = Stability.ALPHA

    def is_announced(self, release: tuple[int, int]) -> bool:
        """Return whether this release has it deprecated."""
        return release >= parse_release(self.since)

    def is_hidden(self, release: tuple[int, int]) -> bool:
        """Return whether this release hides it."""
        major, minor = parse_release(self.since)
        return release >= (major, minor + self.stability.value)


class Label(Struct, frozen=True):
    """A label and every value that it may have."""

    name: str
    values: frozenset[str]

    def checked(self, value: str) -> str:
        return value if value in self.values else OTHER


class Sample(Struct, frozen=True):
    """One line of the text."""

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float


class Counter:
    """A number that only grows while the agent runs."""

    kind: Final = "counter"

    def __init__(self, labels: Sequence[Label]) -> None:
        self._labels = labels
        # Without labels there is one series from the start; with labels a series begins with its first count.
        self._values: dict[LabelValues, float] = {} if labels else {(): 0.0}

    def add(self, *values: str, by: float = 1.0) -> None:
        key = _key(self._labels, values)
        self._values[key] = self._values.get(key, 0.0) + by

    def samples(self, name: str) -> Iterator[Sample]:
        for key, value in self._values.items():
            yield Sample(name, _named(self._labels, key), value)


class Gauge:
    """A number that is computed on each scrape."""

    kind: Final = "gauge"

    def __init__(self, labels: Sequence[Label], read: Callable[[], Reading]) -> None:
        self._labels = labels
        self._read = read

    def samples(self, name: str) -> Iterator[Sample]:
        for values, value in self._read().items():
            yield Sample(name, _named(self._labels, _key(self._labels, values)), value)


class Histogram:
    """How many measurements fell below each bound, and their sum."""

    kind: Final = "histogram"

    def __init__(self, labels: Sequence[Label], bounds: Sequence[float]) -> None:
        self._labels = labels
        self._bounds = (*sorted(bounds), math.inf)
        self._counts: dict[LabelValues, list[int]] = {}
        self._sums: dict[LabelValues, float] = {}

    def observe(self, value: float, *values: str) -> None:
        key = _key(self._labels, values)
        counts = self._counts.setdefault(key, [0] * len(self._bounds))
        counts[bisect_left(self._bounds, value)] += 1
        self._sums[key] = self._sums.get(key, 0.0) + value

    def samples(self, name: str) -> Iterator[Sample]:
        for key, counts in self._counts.items():
            labels = _named(self._labels, key)
            for bound, below in zip(self._bounds, accumulate(counts), strict=True):
                yield Sample(f"{name}_bucket", (*labels, ("le", _number(bound))), below)
            yield Sample(f"{name}_sum", labels, self._sums[key])
            yield Sample(f"{name}_count", labels, sum(counts))


class _Metric(Struct, frozen=True):
    name: str
    about: str
    series: Counter | Gauge | Histogram


class MetricRegistry:
    """All metrics of one agent, by name."""

    def __init__(self, *, version: str = KUBERNETES_VERSION, shows_hidden: bool = False) -> None:
        self._release = parse_release(version)
        self._shows_hidden = shows_hidden
        self._metrics: dict[str, _Metric] = {}
        self._hidden: set[str] = set()

    def counter(
        self, name: str, about: str, labels: Sequence[Label] = (), *, deprecation: Deprecation | None = None
    ) -> Counter:
        series = Counter(labels)
        self._register(name, about, series, deprecation)
        return series

    def gauge(
        self,
        name: str,
        about: str,
        read: Callable[[], Reading],
        labels: Sequence[Label] = (),
        *,
        deprecation: Deprecation | None = None,
    ) -> None:
        self._register(name, about, Gauge(labels, read), deprecation)

    def histogram(
        self,
        name: str,
        about: str,
        bounds: Sequence[float],
        labels: Sequence[Label] = (),
        *,
        deprecation: Deprecation | None = None,
    ) -> Histogram:
        series = Histogram(labels, bounds)
        self._register(name, about, series, deprecation)
        return series

    def write(self) -> bytes:
        """Return the text of every metric, sorted by name."""
        return "".join(_lines(self._metrics[name] for name in sorted(self._metrics))).encode()

    def _register(
        self, name: str, about: str, series: Counter | Gauge | Histogram, deprecation: Deprecation | None
    ) -> None:
        if name in self._metrics or name in self._hidden:
            raise ValueError(f"the metric {name} is registered already")
        if deprecation is not None and deprecation.is_hidden(self._release):
            if not self._shows_hidden:
                # The part that counts does not notice: what it counts is never shown.
                self._hidden.add(name)
                return
            logger.warning("A hidden metric is shown: it will be removed", extra={"metric": name})
        if deprecation is not None and deprecation.is_announced(self._release):
            about = f"(Deprecated since {deprecation.since}) {about}"
        self._metrics[name] = _Metric(name, about, series)


def _lines(metrics: Iterable[_Metric]) -> Iterator[str]:
    for metric in metrics:
        samples = [*metric.series.samples(metric.name)]
        if not samples:
            continue
        yield f"# HELP {metric.name} {metric.about}\n# TYPE {metric.name} {metric.series.kind}\n"
        for sample in samples:
            pairs = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in sample.labels)
            shown = f"{{{pairs}}}" if pairs else ""
            yield f"{sample.name}{shown} {_number(sample.value)}\n"


def _key(labels: Sequence[Label], values: Sequence[str]) -> LabelValues:
    return tuple(label.checked(value) for label, value in zip(labels, values, strict=True))


def _named(labels: Sequence[Label], values: LabelValues) -> tuple[tuple[str, str], ...]:
    return tuple((label.name, value) for label, value in zip(labels, values, strict=True))


def _number(value: float) -> str:
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(value)
