"""What was measured, against what it may be: a table for people, JSON for programs."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One figure. Where a floor or the upstream kubelet was measured and a ratio is the limit, the ratio decides."""

    what: str
    klet: float
    unit: str
    floor: float | None = None
    upstream: float | None = None
    quiet: float | None = None
    """The same while nothing disturbs."""
    most: float | None = None
    """The budget in the row's own unit."""
    most_ratio: float | None = None
    """The budget in times the floor, or, without one, in times the upstream kubelet."""

    @property
    def ratio(self) -> float | None:
        beside = self.upstream if self.floor is None else self.floor
        return self.klet / beside if beside else None

    @property
    def is_met(self) -> bool | None:
        """None: there is no budget for it."""
        if self.most_ratio is not None and self.ratio is not None:
            return self.ratio <= self.most_ratio
        return None if self.most is None else self.klet <= self.most

    @property
    def budget(self) -> str:
        if self.most_ratio is not None:
            return f"{self.most_ratio:.3g}x"
        return "" if self.most is None else f"{self.most:g} {self.unit}".strip()


@dataclass(frozen=True, slots=True)
class Round:
    """Seconds from each pod's beginning to what was waited for."""

    each: tuple[float, ...]
    whole: float | None = None
    """From the first beginning to the last pod, where pods do not begin all at one instant."""

    @property
    def p50(self) -> float:
        return statistics.median(self.each)

    @property
    def last(self) -> float:
        return max(self.each) if self.whole is None else self.whole


def compare_rounds(
    what: str,
    ours: Sequence[Round],
    floor: Sequence[Round],
    *,
    most_ratio: float,
    most_ratio_all: float | None = None,
    upstream: Sequence[Round] = (),
    with_all: bool = True,
) -> list[Row]:
    """Rows for the median round of each side."""
    rows = [
        Row(
            what=f"{what}, p50",
            klet=statistics.median(each.p50 for each in ours),
            floor=statistics.median(each.p50 for each in floor),
            upstream=statistics.median(each.p50 for each in upstream) if upstream else None,
            unit="s",
            most_ratio=most_ratio,
        )
    ]
    if with_all:
        rows.append(
            Row(
                what=f"{what}, all",
                klet=statistics.median(each.last for each in ours),
                floor=statistics.median(each.last for each in floor),
                upstream=statistics.median(each.last for each in upstream) if upstream else None,
                unit="s",
                most_ratio=most_ratio_all or most_ratio,
            )
        )
    return rows


def render_table(rows: Sequence[Row]) -> str:
    """Empty columns are omitted."""
    lines = [("", "klet", "quiet", "floor", "upstream", "ratio", "budget", "met")]
    lines += [
        (
            row.what,
            _number(row.klet, row.unit),
            "" if row.quiet is None else _number(row.quiet, row.unit),
            "" if row.floor is None else _number(row.floor, row.unit),
            "" if row.upstream is None else _number(row.upstream, row.unit),
            "" if row.ratio is None else f"{row.ratio:.2f}x",
            row.budget,
            {True: "yes", False: "NO", None: ""}[row.is_met],
        )
        for row in rows
    ]
    columns = [column for column in zip(*lines, strict=True) if any(column[1:])]
    lines = list(zip(*columns, strict=True))
    widths = [max(len(cell) for cell in column) for column in columns]
    return "\n".join(
        "  ".join(cell.ljust(width) if column == 0 else cell.rjust(width) for column, (cell, width) in enumerate(cells))
        for cells in (zip(line, widths, strict=True) for line in lines)
    )


def render_json(rows: Sequence[Row]) -> str:
    document = [
        {
            "what": row.what,
            "klet": row.klet,
            "quiet": row.quiet,
            "floor": row.floor,
            "upstream": row.upstream,
            "ratio": row.ratio,
            "unit": row.unit,
            "budget": row.budget,
            "met": row.is_met,
        }
        for row in rows
    ]
    return msgspec.json.format(msgspec.json.encode(document)).decode()


def _number(value: float, unit: str) -> str:
    digits = 2 if unit in {"s", "ms", "%"} else 0
    return f"{value:.{digits}f} {unit}".strip()
