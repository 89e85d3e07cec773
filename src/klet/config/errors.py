"""What is wrong with a setting, as one message for a person."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from klet.errors import KletError


class ConfigError(KletError):
    """A setting breaks a rule. The text names the place, the rule, and where it helps what to do."""

    warnings: tuple[str, ...] = ()
    """What else was found on the way to the mistake; often it names the same slip from another side."""


class BadField(ConfigError):
    """A value does not fit its field; the caller adds the file."""

    def __init__(self, path: str, rule: str) -> None:
        super().__init__(f'field "{path}": {rule}' if path else rule)
        self.path = path
        self.rule = rule


def one_line(message: str) -> str:
    """Return a message fit for one line of a log: line breaks become `; `, other control characters escapes."""
    joined = "; ".join(line.strip() for line in message.splitlines() if line.strip())
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in joined)


@contextmanager
def prefixed(prefix: str) -> Iterator[None]:
    """Prefix each mistake found inside with the step that found it."""
    try:
        yield
    except ConfigError as error:
        raise _retold(error, f"{prefix}{error}") from error


@contextmanager
def suffixed(suffix: str) -> Iterator[None]:
    """Append to each mistake found inside where the setting came from."""
    try:
        yield
    except ConfigError as error:
        raise _retold(error, f"{error}{suffix}") from error


@contextmanager
def warned(warnings: Iterable[str]) -> Iterator[None]:
    """Hand what was found before on with each mistake found inside."""
    try:
        yield
    except ConfigError as error:
        error.warnings = (*warnings, *error.warnings)
        raise


def _retold(error: ConfigError, message: str) -> ConfigError:
    extended = ConfigError(message)
    extended.warnings = error.warnings
    return extended
