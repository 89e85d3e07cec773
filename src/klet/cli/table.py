"""Rows of text in aligned columns, as kubectl prints them."""

from collections.abc import Sequence

from klet.cli.pod_table import PodRow

GAP = 3


def render_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, *rows]
    return render_lines(lines, column_widths(lines))


def column_widths(lines: Sequence[Sequence[str]], *, at_least: Sequence[int] = ()) -> list[int]:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [max(pair) for pair in zip(widths, at_least, strict=True)] if at_least else widths


def render_lines(lines: Sequence[Sequence[str]], widths: Sequence[int]) -> str:
    # The last column is not padded: trailing blanks are of no use.
    return "".join(
        "".join(f"{cell:<{width + GAP}}" for cell, width in zip(line, widths, strict=True)).rstrip() + "\n"
        for line in lines
    )


def pod_columns(row: PodRow, *, is_wide: bool) -> list[str]:
    columns = [row.namespace, row.name, row.ready, row.status, row.restarts, row.ip, row.age]
    return [*columns, row.node, row.containers, row.images] if is_wide else columns


def pod_header(*, is_wide: bool) -> list[str]:
    columns = ["NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "IP", "AGE"]
    return [*columns, "NODE", "CONTAINERS", "IMAGES"] if is_wide else columns
