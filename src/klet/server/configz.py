"""The effective configuration as `/configz` shows it. Pure."""

from datetime import timedelta
from typing import Any

import msgspec

from klet.api.times import format_duration
from klet.config.configuration import KubeletConfiguration
from klet.config.files import mask_secrets


def encode_configuration(config: KubeletConfiguration) -> bytes:
    """Encode as JSON, with Go's durations and passwords masked; what is empty is left out, false and zero are not."""
    plain = msgspec.to_builtins(mask_secrets(config), builtin_types=(timedelta,), enc_hook=_as_plain)
    return msgspec.json.encode(_as_shown(plain))


def _as_plain(value: object) -> str:
    """Convert what msgspec has no form for. It knows `timedelta`, but no class derived from it."""
    return _duration(value) if isinstance(value, timedelta) else str(value)


def _duration(value: timedelta) -> str:
    return format_duration(value // timedelta(microseconds=1) * 1000)


def _as_shown(value: Any) -> Any:
    match value:
        case timedelta():
            return _duration(value)
        case dict():
            shown = {name: _as_shown(each) for name, each in value.items()}
            return {name: each for name, each in shown.items() if each not in (None, "", [], {})}
        case list() | tuple():
            return [_as_shown(each) for each in value]
        case _:
            return value
