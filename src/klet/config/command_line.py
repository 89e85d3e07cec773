"""The one entry of the package: a command line to settings, in upstream's order of steps.

Defaults, then `--config`, then the drop-ins of `--config-dir`, then flags; each step can end with one clear message.
Files are read through the two functions that the caller gives, so everything here can be tested without a disk.
"""

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from klet.config.configuration import KubeletConfiguration
from klet.config.configuration_flags import override_configuration
from klet.config.defaults import apply_legacy_defaults, default_configuration
from klet.config.errors import ConfigError, prefixed, suffixed, warned
from klet.config.files import (
    ListDirectory,
    ReadFile,
    list_drop_ins,
    load_configuration,
    merge_drop_ins,
    quote_os_error,
)
from klet.config.flags import KubeletFlags, build_kubelet_flags, describe_left_out_ips, validate_kubelet_flags
from klet.config.flagset import ParsedFlags, parse_flags
from klet.config.gates import FeatureGates, describe_ageing_gates, join_problems, resolve_gates
from klet.config.help import ALL_FLAGS, list_flag_values, render_help
from klet.config.klet import KletConfiguration, finish_klet_configuration, load_klet_configuration
from klet.config.observability import find_logging_problems
from klet.config.open_defaults import refuse_open_defaults
from klet.config.start_checks import check_given_files, check_start
from klet.config.unusable import describe_makeshifts, find_unusable_values
from klet.config.validation import PREFIX, validate_configuration
from klet.config.without_effect import describe_without_effect
from klet.version import KUBELET_VERSION


class ShowText(Struct, frozen=True):
    """Print a text and end with exit code 0 (`--help`, `--version`)."""

    text: str


class Settings(Struct, frozen=True, kw_only=True):
    """Everything that was decided before the agent starts."""

    config: KubeletConfiguration
    flags: KubeletFlags
    klet: KletConfiguration
    gates: FeatureGates
    sources: str = ""
    """Where the settings come from, for messages: the files and the command line."""
    warnings: tuple[str, ...] = ()
    without_effect: tuple[str, ...] = ()
    """Warnings about settings without effect. They are not printed with a refusal, since they do not explain it."""
    flagz: Mapping[str, str] = {}
    """Every flag with its value, if the gate ComponentFlagz is on."""


ParsedCommand: TypeAlias = ShowText | Settings


class HostAccess(Struct, frozen=True, kw_only=True):
    """What the settings depend on besides the command line."""

    read_file: ReadFile
    list_dir: ListDirectory
    working_directory: str
    cgroup_v1: bool


class _Loaded(Struct, frozen=True, kw_only=True):
    """Files and flags on top of the defaults."""

    config: KubeletConfiguration
    asked: KubeletConfiguration
    """The same on top of the defaults of a configuration file, which are stricter than those without one."""
    warnings: tuple[str, ...] = ()


def parse_command_line(
    argv: Sequence[str],
    *,
    read_file: ReadFile,
    list_dir: ListDirectory,
    working_directory: str = "/",
    cgroup_v1: bool = False,
) -> ParsedCommand:
    """Read the arguments of `klet run` (without the program's name); any mistake raises ConfigError."""
    with prefixed("failed to parse kubelet flag: "):
        parsed = parse_flags(argv, ALL_FLAGS)
    if parsed.positional:
        raise ConfigError(f"unknown command {parsed.positional[0]}")
    if parsed.values.get("help"):
        return ShowText(render_help(flag_mode_configuration()))
    if version := parsed.values.get("version"):
        return ShowText(_version_text(is_raw=version == "raw"))
    surroundings = HostAccess(
        read_file=read_file, list_dir=list_dir, working_directory=working_directory, cgroup_v1=cgroup_v1
    )
    with warned(parsed.warnings):
        return load_settings(parsed, surroundings)


def load_settings(parsed: ParsedFlags, surroundings: HostAccess) -> Settings:
    """Combine flags, files and defaults into checked settings."""
    flags = build_kubelet_flags(parsed)
    base = override_configuration(flag_mode_configuration(), parsed)
    _set_gates(base)
    with prefixed("failed to validate kubelet flags: "):
        validate_kubelet_flags(flags)
    loaded = _load_files(base, parsed, flags, surroundings)
    with warned(loaded.warnings):
        return _check_settings(loaded, parsed, flags, surroundings)


def _check_settings(loaded: _Loaded, parsed: ParsedFlags, flags: KubeletFlags, surroundings: HostAccess) -> Settings:
    config = loaded.config
    config = replace(config, seccomp_default=config.seccomp_default or flags.seccomp_default)
    gates = _set_gates(config)
    where = _describe_sources(parsed, flags)
    _validate(config, gates, where, cgroup_v1=surroundings.cgroup_v1)
    with suffixed(f", path: {where}"):
        check_start(config, flags, gates)
        check_given_files(config, flags, surroundings.read_file)
    klet = _load_klet(parsed, flags, surroundings)
    with suffixed(f", path: {where}"):
        refuse_open_defaults(config, loaded.asked, is_standalone=flags.is_standalone)
    if config.cgroups_per_qos and not config.cgroup_root:
        config = replace(config, cgroup_root="/")
    return Settings(
        config=config,
        flags=flags,
        klet=klet,
        gates=gates,
        sources=where,
        warnings=(
            *parsed.warnings,
            *loaded.warnings,
            *_describe_oddities(config),
            *describe_left_out_ips(flags),
        ),
        without_effect=tuple(describe_without_effect(config, gates, parsed.values)),
        flagz=list_flag_values(override_configuration(flag_mode_configuration(), parsed), flags, parsed.values)
        if gates.enabled("ComponentFlagz")
        else {},
    )


def flag_mode_configuration() -> KubeletConfiguration:
    """Return what holds when there is no configuration file."""
    return apply_legacy_defaults(default_configuration(resolve_gates({})))


def _load_files(
    base: KubeletConfiguration, parsed: ParsedFlags, flags: KubeletFlags, surroundings: HostAccess
) -> _Loaded:
    config, asked = base, override_configuration(default_configuration(resolve_gates({})), parsed)
    warnings: tuple[str, ...] = ()
    if flags.config:
        path = posixpath.normpath(posixpath.join(surroundings.working_directory, flags.config))
        loaded = load_configuration(path, _read_config(path, surroundings.read_file), flag_gates=base.feature_gates)
        config = asked = loaded.config
        warnings = loaded.warnings
    if flags.config_dir:
        walk = f'failed to walk through kubelet dropin directory "{flags.config_dir}": '
        with warned(warnings), prefixed(f"failed to merge kubelet configs: {walk}"):
            drop_ins = _read_drop_ins(flags.config_dir, surroundings)
            config = merge_drop_ins(config, drop_ins, flag_gates=base.feature_gates)
            asked = merge_drop_ins(asked, drop_ins, flag_gates=base.feature_gates)
    if flags.config or flags.config_dir:
        config, asked = override_configuration(config, parsed), override_configuration(asked, parsed)
    return _Loaded(config=config, asked=asked, warnings=warnings)


def _read_config(path: str, read_file: ReadFile) -> bytes:
    try:
        return read_file(path)
    except OSError as error:
        cause = f'failed to read kubelet config file "{path}", error: {quote_os_error(error, path)}'
        raise ConfigError(
            f"failed to load kubelet config file, path: {path}, error: "
            f"failed to load Kubelet config file {path}, error {cause}"
        ) from error


def _read_drop_ins(name: str, surroundings: HostAccess) -> tuple[tuple[str, bytes], ...]:
    directory = posixpath.join(surroundings.working_directory, name)
    try:
        paths = list_drop_ins(directory, surroundings.list_dir)
    except OSError as error:
        raise ConfigError(quote_os_error(error, directory, operation="lstat")) from error
    return tuple((path, _read_drop_in(path, surroundings.read_file)) for path in paths)


def _read_drop_in(path: str, read_file: ReadFile) -> bytes:
    try:
        return read_file(path)
    except OSError as error:
        cause = f'failed to read drop-in kubelet config file "{path}", error: {quote_os_error(error, path)}'
        raise ConfigError(
            f"failed to load kubelet dropin file, path: {path}, error: "
            f"failed to load drop-in kubelet config file {path}, error {cause}"
        ) from error


def _set_gates(config: KubeletConfiguration) -> FeatureGates:
    with prefixed("failed to set feature gates from initial flags-based config: "):
        return resolve_gates(config.feature_gates)


def _describe_sources(parsed: ParsedFlags, flags: KubeletFlags) -> str:
    """Return where a person has to look for a setting."""
    has_flags = any(flag.name in parsed.values for flag in ALL_FLAGS if flag.name not in ("config", "config-dir"))
    sources = [flags.config, flags.config_dir and f"{flags.config_dir}/*.conf", "command line" if has_flags else ""]
    return ", ".join(filter(None, sources)) or "the defaults"


def _validate(config: KubeletConfiguration, gates: FeatureGates, where: str, *, cgroup_v1: bool) -> None:
    log_problems = tuple(find_logging_problems(config.logging, gates))
    if log_problems:
        raise ConfigError(f"initialize logging: {join_problems(log_problems)}, path: {where}")
    unusable = (f"{PREFIX}{problem}" for problem in find_unusable_values(config))
    problems = (*validate_configuration(config, gates, cgroup_v1=cgroup_v1), *unusable)
    if problems:
        raise ConfigError(f"failed to validate kubelet configuration, error: {join_problems(problems)}, path: {where}")


def _describe_oddities(config: KubeletConfiguration) -> Iterator[str]:
    yield from describe_ageing_gates(config.feature_gates)
    yield from describe_makeshifts(config)
    reserved = config.kube_reserved_cgroup
    if config.kubelet_cgroups and reserved and not config.kubelet_cgroups.startswith(reserved):
        yield "unsupported configuration:KubeletCgroups is not within KubeReservedCgroup"


def _load_klet(parsed: ParsedFlags, flags: KubeletFlags, surroundings: HostAccess) -> KletConfiguration:
    config = KletConfiguration()
    name = parsed.values.get("klet-config")
    where = ""
    if isinstance(name, str) and name:
        where = f", path: {name}, command line"
        path = posixpath.join(surroundings.working_directory, name)
        try:
            content = surroundings.read_file(path)
        except OSError as error:
            raise ConfigError(
                f"failed to load klet config file, path: {path}, error: {quote_os_error(error, path)}"
            ) from error
        config = load_klet_configuration(path, content)
    with suffixed(where):
        return finish_klet_configuration(config, parsed, root_dir=flags.root_dir)


def _version_text(*, is_raw: bool) -> str:
    if not is_raw:
        return f"Kubernetes {KUBELET_VERSION}\n"
    major, minor = KUBELET_VERSION.removeprefix("v").split(".")[:2]
    return f'version.Info{{Major:"{major}", Minor:"{minor}", GitVersion:"{KUBELET_VERSION}"}}\n'
