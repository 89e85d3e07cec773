"""Metrics of one agent, in Prometheus' text format.

A registry is made once per agent and handed to the parts that count. Input from outside must not create time series
without end: the values of a label come from a fixed set, or are the first few that come, or are names of objects whose
series are removed with them. What is in no set is counted as `other`.

Counting is a look-up in a dictionary. Names and labels are written once per series, not once per scrape.

A metric that upstream has deprecated says so, and is hidden after a time that depends on its stability, unless
`showHiddenMetricsForVersion` shows it for one release more.
"""

import logging
import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import accumulate
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from klet.version import KUBERNETES_VERSION, parse_release

logger = logging.getLogger(__name__)

OTHER: Final = "other"
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores"
DEFAULT_BOUNDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
"""Of Prometheus' own libraries."""
_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})
_HELP_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n"})
_EXACT: Final = float(1 << 53)

LabelValues: TypeAlias = tuple[str, ...]
Reading: TypeAlias = Mapping[LabelValues, float]
Kind: TypeAlias = Literal["counter", "gauge", "histogram"]


class Stability(Enum):
    """What upstream promises about a metric: for how many minor releases it is shown once it is deprecated."""

    ALPHA = 0
    BETA = 1
    STABLE = 3


class Deprecation(Struct, frozen=True):
    """Since which release a metric should not be used any more."""

    since: str
    """With its patch number, as upstream writes it: `1.34.0`."""

    def is_announced(self, release: tuple[int, int]) -> bool:
        """Return whether this release has it deprecated."""
        return release >= parse_release(self.since)

    def is_hidden(self, release: tuple[int, int], stability: Stability) -> bool:
        """Return whether this release hides it."""
        major, minor = parse_release(self.since)
        return release >= (major, minor + stability.value)


class Label(Struct, frozen=True):
    """A label and every value that it may have."""

    name: str
    values: frozenset[str]


class FewValues(Struct, frozen=True):
    """A label whose values are not known before they come, but are few: after so many, a new one is `other`."""

    name: str
    at_most: int


class ObjectName(Struct, frozen=True):
    """A label that names an object of the node. The part that counts removes the series together with the object."""

    name: str


AnyLabel: TypeAlias = Label | FewValues | ObjectName


class Promise(Struct, frozen=True):
    """What upstream promises about a metric."""

    stability: Stability = Stability.ALPHA
    deprecation: Deprecation | None = None


ALPHA: Final = Promise()
BETA: Final = Promise(Stability.BETA)
STABLE: Final = Promise(Stability.STABLE)


class _LabelSets:
    """The labels of one metric: which values they may have, and how a series with them is written."""

    def __init__(self, labels: Sequence[AnyLabel]) -> None:
        self._labels = tuple(labels)
        self._seen: dict[str, set[str]] = {each.name: set() for each in labels if isinstance(each, FewValues)}
        # Prometheus' own libraries sort labels by name.
        self._order = sorted(range(len(self._labels)), key=lambda index: self._labels[index].name)

    def __bool__(self) -> bool:
        return bool(self._labels)

    def check(self, values: Sequence[str]) -> LabelValues:
        """Return the values that are counted for these."""
        return tuple(self._checked(label, value) for label, value in zip(self._labels, values, strict=True))

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._labels[index].name for index in self._order)

    def pairs(self, values: LabelValues) -> str:
        return ",".join(f'{self._labels[index].name}="{values[index].translate(_ESCAPES)}"' for index in self._order)

    def _checked(self, label: AnyLabel, value: str) -> str:
        match label:
            case Label():
                return value if value in label.values else OTHER
            case FewValues():
                seen = self._seen[label.name]
                if value not in seen and len(seen) >= label.at_most:
                    return OTHER
                seen.add(value)
                return value
            case ObjectName():
                return value


class Counter:
    """A number that only grows while the agent runs."""

    kind: Final = "counter"

    def __init__(self, name: str, labels: Sequence[AnyLabel]) -> None:
        self._series = _Numbers(name, labels)
        self._values = self._series.values

    def add(self, *values: str, by: float = 1.0) -> None:
        try:
            self._values[values] += by
        except KeyError:
            key = self._series.check(values)
            self._values[key] = self._values.get(key, 0.0) + by

    def remove(self, *values: str) -> None:
        """Remove the series of an object that is gone."""
        self._series.remove(values)

    def reset(self) -> None:
        self._series.reset()

    @property
    def label_names(self) -> tuple[str, ...]:
        return self._series.label_names

    def lines(self) -> Iterator[str]:
        return self._series.lines()


class Gauge:
    """A number that is set when it changes."""

    kind: Final = "gauge"

    def __init__(self, name: str, labels: Sequence[AnyLabel]) -> None:
        self._series = _Numbers(name, labels)
        self._values = self._series.values

    def set(self, value: float, *values: str) -> None:
        self._values[self._series.check(values)] = value

    def add(self, *values: str, by: float = 1.0) -> None:
        try:
            self._values[values] += by
        except KeyError:
            key = self._series.check(values)
            self._values[key] = self._values.get(key, 0.0) + by

    def remove(self, *values: str) -> None:
        """Remove the series of an object that is gone."""
        self._series.remove(values)

    def reset(self) -> None:
        self._series.reset()

    @property
    def label_names(self) -> tuple[str, ...]:
        return self._series.label_names

    def lines(self) -> Iterator[str]:
        return self._series.lines()


class ComputedMetric:
    """Numbers that are computed on each scrape, and cost nothing between them."""

    def __init__(self, name: str, labels: Sequence[AnyLabel], read: Callable[[], Reading], kind: Kind) -> None:
        self.kind = kind
        self._name = name
        self._labels = _LabelSets(labels)
        self._read = read
        self._heads: dict[LabelValues, str] = {}

    @property
    def label_names(self) -> tuple[str, ...]:
        return self._labels.names

    def lines(self) -> Iterator[str]:
        totals: dict[str, float] = {}
        heads: dict[LabelValues, str] = {}
        for values, value in self._read().items():
            head = self._heads.get(values)
            if head is None:
                head = _head(self._name, self._labels.pairs(self._labels.check(values)))
            heads[values] = head
            # Values outside a set are `other` together.
            totals[head] = totals[head] + value if head in totals else value
        # Those of this scrape alone: objects come and go.
        self._heads = heads
        for head, value in totals.items():
            yield f"{head} {format_number(value)}\n"


class Histogram:
    """How many measurements fell below each bound, and their sum."""

    kind: Final = "histogram"

    def __init__(self, name: str, labels: Sequence[AnyLabel], bounds: Sequence[float]) -> None:
        self._name = name
        self._labels = _LabelSets(labels)
        self._bounds = (*sorted(bounds), math.inf)
        # Per series the count of each bucket, and at the end the sum of all values.
        self._counts: dict[LabelValues, list[float]] = {}
        self._heads: dict[LabelValues, tuple[str, ...]] = {}
        if not self._labels:
            self._counts[()] = [0] * (len(self._bounds) + 1)

    def begin(self, *values: str) -> None:
        """Show a series before there is anything to measure."""
        self._counts.setdefault(self._labels.check(values), [0] * (len(self._bounds) + 1))

    def observe(self, value: float, *values: str) -> None:
        counts = self._counts.get(values)
        if counts is None:
            counts = self._counts.setdefault(self._labels.check(values), [0] * (len(self._bounds) + 1))
        counts[bisect_left(self._bounds, value)] += 1
        counts[-1] += value

    @property
    def label_names(self) -> tuple[str, ...]:
        return self._labels.names

    def remove(self, *values: str) -> None:
        """Remove the series of an object that is gone."""
        self._counts.pop(values, None)
        self._heads.pop(values, None)

    def lines(self) -> Iterator[str]:
        for values, counts in self._counts.items():
            heads = self._heads.get(values)
            if heads is None:
                heads = self._heads[values] = self._write_heads(values)
            total = 0.0
            for head, total in zip(heads, accumulate(counts[:-1]), strict=False):
                yield f"{head}{format_number(total)}\n"
            yield f"{heads[-2]}{format_number(counts[-1])}\n{heads[-1]}{format_number(total)}\n"

    def _write_heads(self, values: LabelValues) -> tuple[str, ...]:
        pairs = self._labels.pairs(values)
        begin = f"{pairs}," if pairs else ""
        buckets = (f'{self._name}_bucket{{{begin}le="{format_number(bound)}"}} ' for bound in self._bounds)
        return *buckets, f"{_head(f'{self._name}_sum', pairs)} ", f"{_head(f'{self._name}_count', pairs)} "


class _Numbers:
    """The series of a counter or a gauge. Without labels there is one from the start."""

    def __init__(self, name: str, labels: Sequence[AnyLabel]) -> None:
        self._name = name
        self._labels = _LabelSets(labels)
        self._heads: dict[LabelValues, str] = {}
        self.values: dict[LabelValues, float] = {}
        self.reset()

    @property
    def label_names(self) -> tuple[str, ...]:
        return self._labels.names

    def check(self, values: LabelValues) -> LabelValues:
        return self._labels.check(values)

    def remove(self, values: LabelValues) -> None:
        self.values.pop(values, None)
        self._heads.pop(values, None)

    def reset(self) -> None:
        self.values.clear()
        self._heads.clear()
        if not self._labels:
            self.values[()] = 0.0

    def lines(self) -> Iterator[str]:
        for values, value in self.values.items():
            head = self._heads.get(values)
            if head is None:
                head = self._heads[values] = _head(self._name, self._labels.pairs(values))
            yield f"{head} {format_number(value)}\n"


AnyMetric: TypeAlias = Counter | Gauge | ComputedMetric | Histogram


class _Registered(Struct, frozen=True):
    intro: str
    metric: AnyMetric


class MetricRegistry:
    """All metrics of one agent, or of one endpoint of it, by name."""

    def __init__(self, *, version: str = KUBERNETES_VERSION, shows_hidden: bool = False) -> None:
        self._release = parse_release(version)
        self._shows_hidden = shows_hidden
        self._metrics: dict[str, _Registered] = {}
        self._sorted: list[_Registered] | None = None
        self._hidden: set[str] = set()
        self._levels: dict[LabelValues, float] = {}
        self._refreshers: list[Callable[[], None]] = []

    def counter(
        self, name: str, about: str, labels: Sequence[AnyLabel] = (), *, promise: Promise | None = ALPHA
    ) -> Counter:
        counter = Counter(name, labels)
        self._register(name, about, counter, promise)
        return counter

    def gauge(
        self, name: str, about: str, labels: Sequence[AnyLabel] = (), *, promise: Promise | None = ALPHA
    ) -> Gauge:
        gauge = Gauge(name, labels)
        self._register(name, about, gauge, promise)
        return gauge

    def computed(
        self,
        name: str,
        about: str,
        read: Callable[[], Reading],
        labels: Sequence[AnyLabel] = (),
        *,
        kind: Literal["gauge", "counter"] = "gauge",
        promise: Promise | None = ALPHA,
    ) -> None:
        """Register a metric that is read on each scrape. A metric without a promise is none of upstream's own."""
        self._register(name, about, ComputedMetric(name, labels, read, kind), promise)

    def histogram(
        self,
        name: str,
        about: str,
        bounds: Sequence[float],
        labels: Sequence[AnyLabel] = (),
        *,
        promise: Promise | None = ALPHA,
    ) -> Histogram:
        histogram = Histogram(name, labels, bounds)
        self._register(name, about, histogram, promise)
        return histogram

    def families(self) -> Iterator[tuple[str, Kind, tuple[str, ...]]]:
        """Yield the name, the kind and the labels of every metric that is shown."""
        for name, each in self._metrics.items():
            yield name, each.metric.kind, each.metric.label_names

    def before_scrape(self, refresh: Callable[[], None]) -> None:
        """Have a function called before each scrape: it reads what several computed metrics are made from."""
        self._refreshers.append(refresh)

    def levels(self) -> Reading:
        """Return how many metrics there are, by stability and by the version that deprecated them."""
        return self._levels

    def reset(self) -> None:
        """Begin every count again."""
        for each in self._metrics.values():
            if isinstance(each.metric, Counter | Gauge):
                each.metric.reset()

    @property
    def hidden(self) -> int:
        """How many metrics are not shown."""
        return len(self._hidden)

    def write(self) -> bytes:
        """Return the text of every metric, sorted by name."""
        for refresh in self._refreshers:
            refresh()
        if self._sorted is None:
            self._sorted = [self._metrics[name] for name in sorted(self._metrics)]
        parts: list[str] = []
        for each in self._sorted:
            begin = len(parts)
            parts.append(each.intro)
            parts.extend(each.metric.lines())
            if len(parts) == begin + 1:
                parts.pop()
        return "".join(parts).encode()

    def _register(self, name: str, about: str, metric: AnyMetric, promise: Promise | None) -> None:
        if name in self._metrics or name in self._hidden:
            raise ValueError(f"the metric {name} is registered already")
        if promise is not None:
            shown = self._with_promise(name, about, promise)
            if shown is None:
                # The part that counts does not notice: what it counts is never shown.
                self._hidden.add(name)
                return
            about = shown
        intro = f"# HELP {name} {about.translate(_HELP_ESCAPES)}\n# TYPE {name} {metric.kind}\n"
        self._metrics[name] = _Registered(intro, metric)
        self._sorted = None

    def _with_promise(self, name: str, about: str, promise: Promise) -> str | None:
        """Return the text of a metric with what upstream promises about it; None if it is hidden."""
        stability, deprecation = promise.stability, promise.deprecation
        is_announced = deprecation is not None and deprecation.is_announced(self._release)
        if deprecation is not None and deprecation.is_hidden(self._release, stability):
            if not self._shows_hidden:
                return None
            logger.warning("A hidden metric is shown: it will be removed", extra={"metric": name})
        level = stability.name, deprecation.since if deprecation is not None and is_announced else ""
        self._levels[level] = self._levels.get(level, 0) + 1
        note = f"(Deprecated since {deprecation.since}) " if deprecation is not None and is_announced else ""
        return f"[{stability.name}] {note}{about}"


class AgentMetrics(Struct, frozen=True, kw_only=True):
    """The metrics of one agent, by the endpoint that shows them."""

    agent: MetricRegistry
    """`/metrics`."""
    probes: MetricRegistry
    """`/metrics/probes`."""
    slis: MetricRegistry
    """`/metrics/slis`."""
    process_started: float
    """When the process started, in seconds since the epoch."""


def format_number(value: float) -> str:
    """Return a number as Prometheus reads it."""
    if -_EXACT < value < _EXACT and value == int(value):
        return str(int(value))
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(float(value))


def _head(name: str, pairs: str) -> str:
    return f"{name}{{{pairs}}}" if pairs else name
