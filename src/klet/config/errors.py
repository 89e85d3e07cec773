"""What is wrong with a setting, as one message for a person."""

from klet.errors import KletError


class ConfigError(KletError):
    """A setting breaks a rule. The text says where, which rule, and where it helps what to do."""


class BadField(ConfigError):
    """A value does not fit its field; the caller adds the file."""

    def __init__(self, path: str, rule: str) -> None:
        super().__init__(f'field "{path}": {rule}' if path else rule)
        self.path = path
        self.rule = rule
