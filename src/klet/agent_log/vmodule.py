"""`--vmodule`: another verbosity for some modules, chosen by patterns as klog matches them. Pure but for a memory.

klog compares the name of a source file, without directory and suffix; here that is the last part of a module's name.
Upstream's file names stand for the modules that do the same work, so that a pattern written for upstream finds them.
"""

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

from klet.model.verbosity import verbosity_of

UPSTREAM_FILES: Final[Mapping[str, str]] = {
    "kubelet": "sync/loop sync/pod_sync sync/housekeeping",
    "pod_workers": "sync/workers",
    "generic": "pleg/pleg",
    "evented": "pleg/pleg",
    "pod_manager": "pods/store",
    "mirror_client": "pods/mirrors",
    "status_manager": "status/manager",
    "kubelet_pods": "sync/pod_status status/generate",
    "kubelet_node_status": "node/registrar node/status_sync",
    "kuberuntime_manager": "runtime/executor runtime/actions",
    "kuberuntime_container": "runtime/creation runtime/starter runtime/hooks runtime/post_start runtime/kill/killer",
    "kuberuntime_sandbox": "runtime/sandboxes",
    "kuberuntime_gc": "runtime/gc",
    "container_log_manager": "logs/rotation",
    "image_manager": "images/manager images/registry_pulls",
    "image_gc_manager": "images/gc images/watcher",
    "image_pull_manager": "images/pulled/records",
    "prober": "probes/prober probes",
    "prober_manager": "probes/manager",
    "volume_manager": "volumes/manager",
    "reconstruct": "volumes/reconstruction",
    "csi_plugin": "volumes/csi/plugin csi_nodes/registration",
    "csi_attacher": "volumes/csi/staging",
    "csi_block": "volumes/csi/blocks",
    "csi_client": "csi/connection",
    "plugin_watcher": "plugins/watcher",
    "oom_watcher_linux": "node/oom",
    "podcertificatemanager": "certs/pod_certificates/manager certs/pod_certificates",
    "certificate_manager": "certs/manager",
    "reflector": "kube/informer kube/watch",
    "round_trippers": "kube/transport",
    "remote_runtime": "cri/connection",
    "remote_image": "cri/connection",
    "httplog": "server/application",
}
"""Upstream's files, without suffix, and the modules that log the same here."""
_META: Final = frozenset("\\*?[]")


class VModuleRule(Struct, frozen=True):
    """A verbosity for the modules that match a pattern."""

    pattern: str
    verbosity: int


class ModuleFilter(logging.Filter):
    """Passes the lines of klet that the verbosity shows, or that of the first pattern which matches their module."""

    def __init__(self, verbosity: int, rules: Sequence[VModuleRule] = ()) -> None:
        super().__init__()
        self._verbosity = verbosity
        # As klog: a pattern with verbosity 0 is dropped, and so hides no later one.
        self._rules = tuple((compile_pattern(rule.pattern), rule.verbosity) for rule in rules if rule.verbosity)
        self._modules: dict[str, int] = {}

    def set_verbosity(self, verbosity: int) -> None:
        """Change the verbosity of the modules that no pattern matches."""
        self._verbosity = verbosity

    @property
    def highest(self) -> int:
        """The verbosity that any module may have."""
        return max((self._verbosity, *(verbosity for _, verbosity in self._rules)))

    def filter(self, record: logging.LogRecord) -> bool:
        verbosity = verbosity_of(record.levelno)
        return verbosity <= self._verbosity or (bool(self._rules) and verbosity <= self._verbosity_of(record.name))

    def _verbosity_of(self, module: str) -> int:
        known = self._modules.get(module)
        if known is None:
            names = names_of(module)
            matching = (verbosity for pattern, verbosity in self._rules if any(map(pattern.match, names)))
            known = self._modules[module] = next(matching, 0)
        return known


def names_of(module: str) -> tuple[str, ...]:
    """Return the names that a pattern may match: the module's path and upstream's file names for it."""
    path = module.removeprefix("klet.").replace(".", "/")
    return path, *(file for file, modules in UPSTREAM_FILES.items() if path in modules.split())


def compile_pattern(pattern: str) -> re.Pattern[str]:
    r"""Return what finds the names that match: with n slashes the last n + 1 parts of a path are compared.

    The syntax is that of Go's filepath.Match: `*`, `?`, `[a-z]`, `[^a-z]` and `\`, none of which crosses a slash. A
    pattern that breaks its rules matches nothing, as in klog.
    """
    body = re.escape(pattern) if not _META & {*pattern} else _translate(pattern)
    return re.compile(r"(?!)" if body is None else rf"(?:.*/)?(?:{body})\Z", re.DOTALL)


def _translate(pattern: str) -> str | None:
    found: list[list[str]] = [[]]
    """What stands between stars: each entry of it matches one character."""
    index = 0
    while index < len(pattern):
        char = pattern[index]
        index += 1
        match char:
            case "*":
                # Stars in a row mean one, and cost as much.
                if found[-1] or len(found) == 1:
                    found.append([])
            case "?":
                found[-1].append("[^/]")
            case "[":
                end, characters = _translate_class(pattern, index)
                if characters is None:
                    return None
                found[-1].append(characters)
                index = end
            case "\\":
                if index == len(pattern):
                    return None
                found[-1].append(re.escape(pattern[index]))
                index += 1
            case _:
                found[-1].append(re.escape(char))
    first, *others = map("".join, found)
    # Only the last star has to try more than the first place that fits: with many, trying all would take very long.
    stars = ["(?>[^/]*?{})"] * (len(others) - 1) + ["[^/]*{}"]
    return first + "".join(star.format(part) for star, part in zip(stars, others, strict=False))


def _translate_class(pattern: str, index: int) -> tuple[int, str | None]:
    """Return the expression of the characters in brackets and where it ends; None if the brackets break a rule."""
    is_negated = pattern[index : index + 1] == "^"
    index += is_negated
    ranges: list[str] = []
    while pattern[index : index + 1] != "]" or not ranges:
        index, low = _class_character(pattern, index)
        high = low
        if low and pattern[index : index + 1] == "-":
            index, high = _class_character(pattern, index + 1)
        if not low or not high:
            return index, None
        # Go's ranges that run backwards hold nothing.
        ranges.append(f"{re.escape(low)}-{re.escape(high)}" if low <= high else "")
    characters = "".join(ranges)
    if is_negated:
        return index + 1, f"[^/{characters}]"
    return index + 1, f"(?!/)[{characters}]" if characters else "(?!)"


def _class_character(pattern: str, index: int) -> tuple[int, str]:
    """Return the next character of a class and the index after it; empty if there is none."""
    char = pattern[index : index + 1]
    if char == "\\":
        index += 1
        char = pattern[index : index + 1]
    elif char in ("-", "]"):
        return index, ""
    return index + 1, char
