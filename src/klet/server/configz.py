"""The effective configuration as `/configz` shows it. Pure."""

from datetime import timedelta
from typing import Any

import msgspec

from klet.api.times import format_duration
from klet.config.configuration import KubeletConfiguration
from klet.config.files import mask_secrets


def encode_configuration(config: KubeletConfiguration) -> bytes:
    """JSON with durations as Go writes them and passwords masked; what is empty is left out, false and zero are not."""
    plain = msgspec.to_builtins(mask_secrets(config), builtin_types=(timedelta,), enc_hook=str)
    return msgspec.json.encode(_as_shown(plain))


def _as_shown(value: Any) -> Any:
    match value:
        case timedelta():
            return format_duration(value // timedelta(microseconds=1) * 1000)
        case dict():
            shown = {name: _as_shown(each) for name, each in value.items()}
            return {name: each for name, each in shown.items() if each not in (None, "", [], {})}
        case list() | tuple():
            return [_as_shown(each) for each in value]
        case _:
            return value
