"""KletConfiguration (klet.dev/v1alpha1): klet's own settings, which never enter KubeletConfiguration.

A file given by `--klet-config`, and flags that begin with `--klet-`, which win.
"""

from datetime import timedelta
from typing import Final

from msgspec.structs import replace

from klet.api.base import Int32
from klet.api.node import RuntimeClass
from klet.api.validation.errors import FieldErrors, aggregate, duplicate, not_supported
from klet.api.validation.fieldpath import FieldPath
from klet.api.validation.runtime_classes import validate_runtime_class
from klet.config.configuration_flags import set_field
from klet.config.decode import decode
from klet.config.document import parse_document
from klet.config.errors import ConfigError, prefixed
from klet.config.files import describe_strict_problems, require_type, without_type
from klet.config.flagset import Flag, FlagTarget, ParsedFlags
from klet.config.flagvalues import BOOL, DURATION, INT32, STRING, FlagKind
from klet.config.places import find_socket_problem
from klet.config.sections import NOTHING, Section

API_VERSION: Final = "klet.dev/v1alpha1"
KIND: Final = "KletConfiguration"
DEFAULT_JOURNAL_RECORDS: Final = 20000
DEFAULT_SOCKET: Final = "klet.sock"
DEFAULT_OFFLINE_AFTER: Final = timedelta(seconds=10)

_SECTION: Final = "klet's own settings"
_CLASS_VERSION: Final = "node.k8s.io/v1"
_CLASS_KIND: Final = "RuntimeClass"


class KletConfiguration(Section, frozen=True, kw_only=True):
    """What upstream's kubelet does not have."""

    socket: str = ""
    """Path of the agent's own API; a relative one starts at the root directory."""
    journal_records: Int32 = 0
    """How many cause records are kept."""
    max_parallel_starts: Int32 = 0
    """Pod starts in flight; 0: chosen from the number of CPUs."""
    bridge_network: bool = False
    """Make a network of the node's pod CIDRs where no other one is configured."""
    leave_kernel_tunables: bool = False
    """Neither set nor check kernel parameters; protectKernelDefaults still checks them."""
    offline: bool = False
    """Keep accepted pods and what they need on disk, and start from that while the API server is away."""
    offline_after: timedelta = NOTHING
    """How long nothing must have answered for the API server to count as away."""
    streams_by_method: bool = False
    """Authorize exec, attach, run and portForward by the request's method, as upstream does: GET needs only `get`."""
    runtime_classes: tuple[RuntimeClass, ...] = ()
    """The classes that pods of this node can name; they stand in for an API server's."""


def _flag(name: str, kind: FlagKind, field: str, text: str, default: str = "") -> Flag:
    return Flag(name, kind, _SECTION, text, FlagTarget.KLET, field, default=default)


KLET_FLAGS: Final = (
    Flag("klet-config", STRING, _SECTION, "File with a KletConfiguration (YAML or JSON)"),
    _flag("klet-socket", STRING, "socket", "Socket of the agent's own API", "<root-dir>/klet.sock"),
    _flag("klet-journal-records", INT32, "journalRecords", "Cause records to keep", str(DEFAULT_JOURNAL_RECORDS)),
    _flag(
        "klet-bridge-network", BOOL, "bridgeNetwork", "Bridge pods of the node's CIDRs if no CNI list is there", "false"
    ),
    _flag("klet-leave-kernel-tunables", BOOL, "leaveKernelTunables", "Do not set kernel parameters", "false"),
    _flag("klet-offline", BOOL, "offline", "Start accepted pods while the API server is away", "false"),
    _flag("klet-offline-after", DURATION, "offlineAfter", "When a silent API server counts as away", "10s"),
    _flag("klet-streams-by-method", BOOL, "streamsByMethod", "Let `get nodes/proxy` exec into pods", "false"),
    _flag("klet-max-parallel-starts", INT32, "maxParallelStarts", "Pod starts in flight; 0: from the CPUs", "0"),
)


def load_klet_configuration(path: str, content: bytes) -> KletConfiguration:
    """Decode the text of `--klet-config` strictly."""
    with prefixed(f"failed to load klet config file, path: {path}, error: "):
        if not content:
            raise ConfigError(f'klet config file "{path}" was empty')
        document = parse_document(content)
        require_type(document.fields, version=API_VERSION, kind=KIND)
        decoded = decode(without_type(document.fields), KletConfiguration)
        problems = describe_strict_problems(document, decoded)
        if problems := problems or aggregate(_find_class_problems(decoded.value.runtime_classes)):
            raise ConfigError(problems)
        return decoded.value


def finish_klet_configuration(config: KletConfiguration, parsed: ParsedFlags, *, root_dir: str) -> KletConfiguration:
    """Lay the flags over a configuration, default what is left, check the result."""
    for flag in KLET_FLAGS:
        if flag.target is FlagTarget.KLET and flag.name in parsed.values:
            config = set_field(config, flag.field, parsed.values[flag.name])
    socket = config.socket or DEFAULT_SOCKET
    config = replace(
        config,
        socket=socket if socket.startswith("/") else f"{root_dir}/{socket}",
        journal_records=config.journal_records or DEFAULT_JOURNAL_RECORDS,
        offline_after=config.offline_after or DEFAULT_OFFLINE_AFTER,
    )
    if config.journal_records < 0:
        raise ConfigError(
            f"journalRecords (--klet-journal-records) {config.journal_records} must be greater than 0; "
            f"0 means {DEFAULT_JOURNAL_RECORDS}"
        )
    if config.max_parallel_starts < 0:
        raise ConfigError(
            f"maxParallelStarts (--klet-max-parallel-starts) {config.max_parallel_starts} must not be negative; "
            "0 chooses from the number of CPUs"
        )
    if config.offline_after < NOTHING:
        raise ConfigError(
            "offlineAfter (--klet-offline-after) must not be negative; 0 means "
            f"{DEFAULT_OFFLINE_AFTER.total_seconds():g}s"
        )
    _check_socket(config.socket, is_default=socket == DEFAULT_SOCKET, root_dir=root_dir)
    return config


def _check_socket(path: str, *, is_default: bool, root_dir: str) -> None:
    problem = find_socket_problem(path) if path.isprintable() else "the path must be printable UTF-8"
    if problem and is_default:
        raise ConfigError(f'--root-dir "{root_dir}": {problem}, and that of {path} is longer: give a --klet-socket')
    if problem:
        raise ConfigError(f'socket (--klet-socket) "{path}": {problem}')


def _find_class_problems(classes: tuple[RuntimeClass, ...]) -> FieldErrors:
    names: set[str] = set()
    for index, each in enumerate(classes):
        path = FieldPath("runtimeClasses").at(index)
        if each.api_version not in {"", _CLASS_VERSION}:
            yield not_supported(path.child("apiVersion"), each.api_version, (_CLASS_VERSION,))
        if each.kind not in {"", _CLASS_KIND}:
            yield not_supported(path.child("kind"), each.kind, (_CLASS_KIND,))
        yield from validate_runtime_class(each, path)
        name = each.metadata.name
        if name and name in names:
            yield duplicate(path.child("metadata", "name"), name)
        names.add(name)
