"""What is wrong with a setting, as one message for a person."""

from collections.abc import Iterator
from contextlib import contextmanager

from klet.errors import KletError


class ConfigError(KletError):
    """A setting breaks a rule. The text says where, which rule, and where it helps what to do."""


class BadField(ConfigError):
    """A value does not fit its field; the caller adds the file."""

    def __init__(self, path: str, rule: str) -> None:
        super().__init__(f'field "{path}": {rule}' if path else rule)
        self.path = path
        self.rule = rule


@contextmanager
def prefixed(prefix: str) -> Iterator[None]:
    """Say before each mistake found inside in which step it was found."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{prefix}{error}") from error
