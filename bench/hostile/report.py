"""The rows: what the node did under attack against what it may, beside the same without attackers."""

from bench.hostile.attack import Done
from bench.hostile.meters import Phase, Samples
from bench.rows import Row

MOST_HEALTH = 100.0
"""Milliseconds, p99."""
MOST_ANSWER = 1.0
"""Seconds for a client with a certificate."""
MOST_GROWTH = 30.0
"""MiB."""


def show_node(quiet: Phase, hostile: Phase, *, before: float, after: float) -> list[Row]:
    """`before` and `after`: MiB of the agent at rest."""
    return [
        *_show_health(quiet.health, hostile.health),
        *_show_client("certificate, new connection", quiet.certified, hostile.certified),
        *_show_client("certificate, kept connection", quiet.kept, hostile.kept),
        *_show_client("certificate, an attacker's address", quiet.beside, hostile.beside, has_budget=False),
        Row(
            what="certificate, kept connection, opened",
            klet=hostile.kept_opened,
            quiet=quiet.kept_opened,
            unit="",
        ),
        Row(what="pod: create -> Running, p50", klet=hostile.pods.p50, quiet=quiet.pods.p50, unit="s"),
        Row(what="pod: create -> Running, worst", klet=hostile.pods.worst, quiet=quiet.pods.worst, unit="s"),
        Row(what="pods started", klet=len(hostile.pods.seconds), quiet=len(quiet.pods.seconds), unit=""),
        _show_failures("pods failed", quiet.pods, hostile.pods),
        Row(what="RSS, grown by", klet=hostile.taken.rss - before, unit="MiB", most=MOST_GROWTH),
        Row(what="RSS, most", klet=hostile.taken.rss, quiet=before, unit="MiB"),
        Row(what="RSS, 10 s later", klet=after, unit="MiB"),
        Row(what="CPU of the agent", klet=hostile.taken.cpu, quiet=quiet.taken.cpu, unit="%"),
        Row(what="lag of the measuring loop, p99", klet=1000 * hostile.lag.p99, quiet=1000 * quiet.lag.p99, unit="ms"),
    ]


def show_attack(done: Done) -> list[Row]:
    """What the attackers managed, to judge the rest by."""
    rates = {
        "hostile connections opened": done.opened,
        "hostile connections not accepted": done.refused,
        "hostile handshakes": done.handshakes,
        "hostile requests answered": sum(done.answers.values()),
    }
    return [
        Row(what="hostile connections at a time", klet=done.held, unit=""),
        *(Row(what=what, klet=count / done.seconds, unit="/s") for what, count in rates.items()),
        Row(what="hostile bytes", klet=done.sent / done.seconds / 2**20, unit="MiB/s"),
        Row(what="CPU of the attackers", klet=100 * done.cpu_seconds / done.seconds, unit="%"),
    ]


def _show_health(quiet: Samples, hostile: Samples) -> list[Row]:
    return [
        Row(what="/healthz, p50", klet=1000 * hostile.p50, quiet=1000 * quiet.p50, unit="ms"),
        Row(what="/healthz, p99", klet=1000 * hostile.p99, quiet=1000 * quiet.p99, unit="ms", most=MOST_HEALTH),
        Row(what="/healthz, worst", klet=1000 * hostile.worst, quiet=1000 * quiet.worst, unit="ms"),
        _show_failures("/healthz, not 200", quiet, hostile),
    ]


def _show_client(what: str, quiet: Samples, hostile: Samples, *, has_budget: bool = True) -> list[Row]:
    most = MOST_ANSWER if has_budget else None
    return [
        Row(what=f"{what}, p50", klet=hostile.p50, quiet=quiet.p50, unit="s"),
        Row(what=f"{what}, p99", klet=hostile.p99, quiet=quiet.p99, unit="s"),
        Row(what=f"{what}, worst", klet=hostile.worst, quiet=quiet.worst, unit="s", most=most),
        _show_failures(f"{what}, not 200", quiet, hostile, most=0 if has_budget else None),
    ]


def _show_failures(what: str, quiet: Samples, hostile: Samples, *, most: float | None = 0) -> Row:
    return Row(what=what, klet=len(hostile.failures), quiet=len(quiet.failures), unit="", most=most)
