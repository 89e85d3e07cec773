"""Questions for the logs of the node's services (upstream: node log query): parsing, validation, arguments. Pure.

Nothing of a query reaches a shell, and journalctl gets every value behind the `=` of its option. The texts of refusals
are upstream's.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC
from typing import Final, TypeAlias

import msgspec
from msgspec import Struct

from klet.api.times import Time, TimeError
from klet.model.foreign_text import shorten
from klet.server.pattern_syntax import find_pattern_problem

MOST_LINES: Final = 100_000
MOST_SERVICES: Final = 4
LONGEST_SERVICE: Final = 256
LONGEST_PATTERN: Final = 1024
_LONGEST_SHOWN: Final = 256
_UNSAFE: Final = re.compile(r"[^a-zA-Z\-_.:0-9@]", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)
_INT64: Final = 2**63
_DATE: Final = "%Y-%m-%d %H:%M:%S UTC"

Values: TypeAlias = Mapping[str, Sequence[str]]


class NodeLogQuery(Struct, frozen=True, kw_only=True):
    """What a client asks for: services or one file, and which lines of services."""

    services: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    since: Time | None = None
    until: Time | None = None
    lines: int | None = None
    boot: int | None = None
    pattern: str = ""

    @property
    def has_options(self) -> bool:
        numbers = (self.since, self.until, self.lines, self.boot)
        return bool(self.pattern) or any(each is not None for each in numbers)


class QueryRefusal(Struct, frozen=True):
    """Why a query is not answered: an HTTP status and its text."""

    status: int
    text: str


def parse_node_log_query(values: Values) -> NodeLogQuery | QueryRefusal | None:
    """Read the parameters that upstream knows; None if there is none of them, and a file of the path is meant."""
    problems: list[str] = []
    asked = values.get("query", ())
    files = tuple(each for each in asked if "/" in each or "\\" in each)
    services = tuple(each for each in asked if each not in files and each.strip())
    if asked and not files and not services:
        problems.append(_invalid("query", asked, "may not be empty"))

    def read(name: str, parse: Callable[[str], Time | int]) -> Time | int | None:
        text = next(iter(values.get(name, ())), "")
        try:
            return parse(text) if text else None
        except ValueError as error:
            problems.append(_invalid(name, text, str(error)))
            return None

    since, until = read("sinceTime", _parse_time), read("untilTime", _parse_time)
    boot, lines = read("boot", _parse_number), read("tailLines", _parse_number)
    if problems:
        return QueryRefusal(400, _join(problems))
    query = NodeLogQuery(
        services=services,
        files=files,
        since=since if isinstance(since, Time) else None,
        until=until if isinstance(until, Time) else None,
        lines=lines if isinstance(lines, int) else None,
        boot=boot if isinstance(boot, int) else None,
        pattern=next(iter(values.get("pattern", ())), ""),
    )
    return query if query != NodeLogQuery() else None


def refuse_file(file: str, problem: str) -> QueryRefusal:
    """Refuse a query for a file that is not there."""
    return QueryRefusal(406, _invalid("query", (file,), _encodable(problem)))


def validate_node_log_query(query: NodeLogQuery) -> QueryRefusal | None:
    """Return why a query is not allowed. Whether its file exists is for the file server to find out."""
    problems = list(_find_problems(query))
    return QueryRefusal(406, _join(problems)) if problems else None


def build_journal_arguments(query: NodeLogQuery, services: Sequence[str]) -> tuple[str, ...]:
    """Return the arguments of journalctl for the lines of these services."""
    arguments = ["--utc", "--no-pager", "--output=short-precise"]
    if query.since is not None:
        arguments.append(f"--since={query.since.astimezone(UTC).strftime(_DATE)}")
    if query.until is not None:
        arguments.append(f"--until={query.until.astimezone(UTC).strftime(_DATE)}")
    if query.lines is not None:
        arguments += ["--pager-end", f"--lines={query.lines}"]
    arguments += [f"--unit={service}" for service in services]
    if query.pattern:
        arguments.append(f"--grep={query.pattern}")
    if query.boot is not None:
        arguments += ["--boot", str(query.boot)]
    return tuple(arguments)


def split_services(services: Sequence[str], units: frozenset[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split services into those that the journal has lines of, and those that may have a file."""
    native = tuple(each for each in services if f"{each}.service" in units)
    return native, tuple(each for each in services if each not in native)


def file_names_of(service: str) -> tuple[str, ...]:
    """Return where the log of a service may be, the first that exists counts."""
    return service, f"{service}.log", f"{service}/{service}.log"


def _find_problems(query: NodeLogQuery) -> Iterator[str]:
    yield from _find_service_problems(query.services)
    if not query.files and not query.services:
        yield "query: Required value: cannot be empty with options"
    elif query.files and query.services:
        yield _invalid("query", (*query.files, *query.services), "cannot specify a file and service")
    elif len(query.files) > 1:
        yield _invalid("query", query.files, "cannot specify more than one file")
    elif query.files and query.has_options:
        yield _invalid("query", query.files, "cannot specify file with options")
    elif query.files and ".." in query.files[0].split("/"):
        yield _invalid("query", query.files, "path escapes from parent")
    if query.since is not None and query.until is not None and query.since > query.until:
        yield _invalid("untilTime", query.until.wire(), "must be after `sinceTime`")
    if query.boot is not None and query.boot > 0:
        yield _invalid("boot", query.boot, "must be less than 1")
    if query.lines is not None and not 0 <= query.lines <= MOST_LINES:
        yield _invalid("tailLines", query.lines, f"must be between 0 and {MOST_LINES}, inclusive")
    if len(query.pattern.encode(errors="replace")) > LONGEST_PATTERN:
        yield _invalid("pattern", query.pattern, f"may have {LONGEST_PATTERN} bytes")
    elif problem := find_pattern_problem(query.pattern):
        yield _invalid("pattern", query.pattern, f"error parsing regexp: {problem}")


def _find_service_problems(services: Sequence[str]) -> Iterator[str]:
    for service in services[: MOST_SERVICES + 1]:
        if len(service) > LONGEST_SERVICE:
            yield _invalid("query", service, f"length must be less than {LONGEST_SERVICE}")
        elif _UNSAFE.search(service):
            yield _invalid("query", service, "input contains unsupported characters")
    if len(services) > MOST_SERVICES:
        yield f"query: Too many: {len(services)}: must have at most {MOST_SERVICES} items"


def _parse_time(text: str) -> Time:
    try:
        return Time.parse(text)
    except TimeError as error:
        raise ValueError("invalid time format") from error


def _parse_number(text: str) -> int:
    shown = _quote(text)
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"strconv.Atoi: parsing {shown}: invalid syntax")
    if not -_INT64 <= int(text) < _INT64:
        raise ValueError(f"strconv.Atoi: parsing {shown}: value out of range")
    return int(text)


def _invalid(field: str, value: str | int | Sequence[str], problem: str) -> str:
    match value:
        case str():
            shown = _quote(value)
        case int():
            shown = str(value)
        case _:
            shown = f"[{', '.join(map(_quote, value[: MOST_SERVICES + 1]))}]"
    return f"{field}: Invalid value: {shown}: {problem}"


def _quote(text: str) -> str:
    return msgspec.json.encode(_encodable(shorten(text, _LONGEST_SHOWN))).decode()


def _encodable(text: str) -> str:
    return text.encode(errors="replace").decode()


def _join(problems: Sequence[str]) -> str:
    return problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
