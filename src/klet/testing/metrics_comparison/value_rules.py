"""Which values of two agents must agree, and how well: the load of the pods is fixed, not that of the machine."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from typing import Final

from msgspec import Struct

from klet.testing.metrics_comparison.differences import DifferenceKind, ReportedDifference
from klet.testing.metrics_comparison.recordings import CADVISOR, RESOURCE, SUMMARY, Recording
from klet.testing.metrics_comparison.shapes import values_of
from klet.testing.metrics_comparison.text_format import LabelSet, ScrapedFamily, ScrapedSample


class Agreement(StrEnum):
    """How two values are compared."""

    EQUAL = "equal"
    NEAR = "near"
    RATE = "rate"
    """Of a counter, between the two rounds."""


class ValueRule(Struct, frozen=True):
    """For the values that its pattern matches."""

    pattern: str
    """Of a family, with the pod after a slash, or of a path of the summary."""
    agreement: Agreement
    share: float = 0.05
    slack: float = 0.0
    """How far apart two values may be however small they are."""


_PAGES: Final = 512 * 1024.0
TEXT_RULES: Final = (
    ValueRule("machine_*/", Agreement.EQUAL),
    ValueRule("container_spec_*/?*", Agreement.EQUAL),
    ValueRule("container_start_time_seconds/?*", Agreement.NEAR, share=0, slack=1),
    ValueRule("container_threads_max/?*", Agreement.EQUAL),
    ValueRule("container_ulimits_soft/?*", Agreement.EQUAL),
    ValueRule("container_*working_set_bytes/?*", Agreement.NEAR, slack=_PAGES),
    ValueRule("pod_memory_working_set_bytes/?*", Agreement.NEAR, slack=_PAGES),
    ValueRule("container_memory_rss/?*", Agreement.NEAR, slack=_PAGES),
    ValueRule("container_memory_usage_bytes/?*", Agreement.NEAR, slack=_PAGES),
    ValueRule("container_cpu_usage_seconds_total/burner", Agreement.RATE, slack=0.01),
    ValueRule("pod_cpu_usage_seconds_total/burner", Agreement.RATE, slack=0.01),
    ValueRule("container_network_*_bytes_total/talker", Agreement.RATE, slack=200),
    ValueRule("container_network_*_packets_total/talker", Agreement.RATE, slack=1),
)
SUMMARY_RULES: Final = (
    ValueRule("*capacityBytes", Agreement.EQUAL),
    ValueRule("*fs.inodes", Agreement.EQUAL),
    ValueRule("pods[*].process_stats.process_count", Agreement.NEAR, share=0, slack=1),
    ValueRule("pods[*].memory.workingSetBytes", Agreement.NEAR, slack=_PAGES),
    ValueRule("pods[*].memory.rssBytes", Agreement.NEAR, slack=_PAGES),
    ValueRule("pods[*].startTime", Agreement.EQUAL),
    ValueRule("pods[[]default/burner[]]*.cpu.usageNanoCores", Agreement.NEAR, slack=1e7),
    ValueRule("pods[[]default/files[]]*.usedBytes", Agreement.NEAR, slack=65536),
    ValueRule("pods[[]default/files[]]*.inodesUsed", Agreement.NEAR, slack=2),
    ValueRule("pods[[]default/talker[]].network.?xBytes", Agreement.RATE, slack=300),
)


def compare_values(upstream: Recording, klet: Recording) -> Iterator[ReportedDifference]:
    """Yield the values that should agree and do not."""
    for route in (CADVISOR, RESOURCE):
        theirs, ours = (
            [_samples(each.families(route)) for each in (agent.first, agent.second)] for agent in (upstream, klet)
        )
        for key in sorted(theirs[1].keys() & ours[1].keys()):
            if (rule := _find_rule(TEXT_RULES, _subject(key))) is not None:
                pair = [(rounds[0].get(key), rounds[1][key]) for rounds in (theirs, ours)]
                values = [_value(rule, first, second) for first, second in pair]
                yield from _judge(route, rule, _show(key), *values)
    theirs_now, ours_now = (values_of(each.second.summary(SUMMARY)) for each in (upstream, klet))
    theirs_then, ours_then = (values_of(each.first.summary(SUMMARY)) for each in (upstream, klet))
    for path in sorted(theirs_now.keys() & ours_now.keys()):
        if (rule := _find_rule(SUMMARY_RULES, path)) is None:
            continue
        if rule.agreement is Agreement.RATE:
            rates = [_summary_rate(path, *rounds) for rounds in ((theirs_then, theirs_now), (ours_then, ours_now))]
            yield from _judge(SUMMARY, rule, path, *rates)
        else:
            yield from _judge(SUMMARY, rule, path, theirs_now[path], ours_now[path])


def agrees(rule: ValueRule, theirs: object, ours: object) -> bool:
    """Return whether two values are as close as the rule says."""
    if rule.agreement is Agreement.EQUAL or not isinstance(theirs, int | float) or not isinstance(ours, int | float):
        return theirs == ours
    return abs(theirs - ours) <= max(rule.slack, rule.share * abs(theirs))


def _judge(route: str, rule: ValueRule, subject: str, theirs: object, ours: object) -> Iterator[ReportedDifference]:
    if not agrees(rule, theirs, ours):
        yield ReportedDifference(route, DifferenceKind.VALUE, subject, f"{theirs}, here {ours} ({rule.agreement})")


def _find_rule(rules: tuple[ValueRule, ...], subject: str) -> ValueRule | None:
    return next((rule for rule in rules if fnmatchcase(subject, rule.pattern)), None)


def _samples(families: Mapping[str, ScrapedFamily]) -> dict[tuple[str, LabelSet], ScrapedSample]:
    return {(each.name, each.labels): each for family in families.values() for each in family.samples}


def _subject(key: tuple[str, LabelSet]) -> str:
    return f"{key[0]}/{dict(key[1]).get('pod', '')}"


def _show(key: tuple[str, LabelSet]) -> str:
    return f"{key[0]}{{{','.join(f'{name}={value}' for name, value in key[1] if value)}}}"


def _value(rule: ValueRule, first: ScrapedSample | None, second: ScrapedSample) -> float | None:
    if rule.agreement is not Agreement.RATE:
        return second.value
    if first is None or first.milliseconds is None or second.milliseconds is None:
        return None
    passed = (second.milliseconds - first.milliseconds) / 1000
    return (second.value - first.value) / passed if passed > 0 else None


def _summary_rate(path: str, then: Mapping[str, object], now: Mapping[str, object]) -> float | None:
    """Return the growth of a number per second, by the times at which the agent read it."""
    before, after = then.get(path), now.get(path)
    began, ended = (each.get(f"{path.rpartition('.')[0]}.time") for each in (then, now))
    if not isinstance(before, int | float) or not isinstance(after, int | float):
        return None
    if not isinstance(began, str) or not isinstance(ended, str):
        return None
    passed = (datetime.fromisoformat(ended) - datetime.fromisoformat(began)).total_seconds()
    return (after - before) / passed if passed > 0 else None
