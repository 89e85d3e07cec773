"""The help text of `klet run`: every flag, by section, with its default."""

import textwrap
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from klet.api.times import Duration
from klet.config.configuration import KubeletConfiguration
from klet.config.configuration_flags import CONFIGURATION_FLAGS, DEPRECATED, get_field
from klet.config.files import mask_secrets
from klet.config.flags import IGNORED_SECTION, KUBELET_FLAGS, KubeletFlags
from klet.config.flagset import Flag, FlagTarget
from klet.config.gates import describe_gates
from klet.config.klet import KLET_FLAGS

ALL_FLAGS: Final = (*KUBELET_FLAGS, *CONFIGURATION_FLAGS, *KLET_FLAGS)
"""Every flag that `klet run` takes."""

WIDTH: Final = 120
_INDENT: Final = " " * 12
_INTRODUCTION: Final = """\
klet run is a kubelet: it runs the pods that its API server or its static pod files ask for.

Usage:
  klet run [flags]
"""
_FOOTNOTE: Final = (
    "* sets a field of KubeletConfiguration: prefer the file given by --config, of which the flag overrides one field."
)


def render_help(defaults: KubeletConfiguration) -> str:
    """Return the whole text; the defaults are those that hold without a configuration file."""
    sections: dict[str, list[Flag]] = {}
    # Flags without effect come last, whatever table they are in.
    for flag in sorted(ALL_FLAGS, key=lambda flag: flag.section == IGNORED_SECTION):
        sections.setdefault(flag.section, []).append(flag)
    parts = [_INTRODUCTION]
    for title, flags in sections.items():
        parts.append(f"{title}:\n{_render_flags(flags, defaults)}")
    parts.append(f"{_FOOTNOTE}\n\nGates that --feature-gates knows:\n{_render_gates()}")
    return "\n".join(parts)


def _render_flags(flags: Sequence[Flag], defaults: KubeletConfiguration) -> str:
    return "".join(_render_flag(flag, defaults) for flag in sorted(flags, key=lambda flag: flag.name))


def _render_flag(flag: Flag, defaults: KubeletConfiguration) -> str:
    short = f"-{flag.shorthand}, " if flag.shorthand else "    "
    name = f"  {short}--{flag.name}{f' {flag.kind.name}' if flag.kind.name else ''}"
    default = _default(flag, defaults)
    text = flag.help + (f" (default {default})" if default else "")
    if flag.deprecated == DEPRECATED:
        name += " *"
    elif flag.deprecated and flag.section != IGNORED_SECTION:
        text += f" (DEPRECATED: {flag.deprecated})"
    body = textwrap.fill(text, WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT)
    return f"{name}\n{body}\n"


def _default(flag: Flag, defaults: KubeletConfiguration) -> str:
    match flag.target:
        case FlagTarget.CONFIGURATION:
            return _show(get_field(defaults, flag.field))
        case FlagTarget.FLAGS:
            return _show(getattr(KubeletFlags(), flag.field))
        case FlagTarget.KLET | FlagTarget.NONE:
            return flag.default


def list_flag_values(config: KubeletConfiguration, flags: KubeletFlags, given: Mapping[str, object]) -> dict[str, str]:
    """Return every flag with its value, as `/flagz` shows them: given, or the default. Secrets of URLs are masked."""
    masked = mask_secrets(config)

    def value_of(flag: Flag) -> object:
        match flag.target:
            case FlagTarget.CONFIGURATION:
                return get_field(masked, flag.field)
            case FlagTarget.FLAGS:
                return getattr(flags, flag.field)
            case FlagTarget.KLET | FlagTarget.NONE:
                return given.get(flag.name, flag.default)

    return {flag.name: _show_value(value_of(flag)) for flag in ALL_FLAGS}


def _show_value(value: object) -> str:
    if isinstance(value, bool | int):
        return str(value).lower()
    return _show(value) or ("0s" if isinstance(value, timedelta) else "")


def _show(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else ""
    if isinstance(value, timedelta):
        return Duration.of(value).wire() if value else ""
    if isinstance(value, Mapping):
        return ",".join(f"{key}={inner}" for key, inner in value.items())
    if isinstance(value, list | tuple):
        return f"[{','.join(map(str, value))}]" if value else ""
    return str(value) if value else ""


def _render_gates() -> str:
    return "".join(f"  {line}\n" for line in describe_gates())
