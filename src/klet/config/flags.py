"""KubeletFlags: the settings that exist only on the command line, their flags and their rules."""

import posixpath
from collections.abc import Iterator, Mapping
from datetime import timedelta
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from klet.api.times import Duration
from klet.api.validation.formats import dns_subdomain, label_key, label_value, parse_ip
from klet.config.errors import ConfigError
from klet.config.flagset import Flag, FlagTarget, ParsedFlags
from klet.config.flagvalues import (
    BOOL,
    DURATION,
    INT32,
    INT64,
    LABELS,
    STRING,
    VERSION,
    FlagKind,
)
from klet.config.places import find_cgroup_problem, find_path_problem

DEFAULT_ROOT_DIRECTORY: Final = "/var/lib/kubelet"

_ALLOWED_LABELS: Final = (
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
)
_ALLOWED_LABEL_NAMESPACES: Final = ("kubelet.kubernetes.io", "node.kubernetes.io")
_UNSPECIFIED: Final = (IPv4Address(0), IPv6Address(0))


class KubeletFlags(Struct, frozen=True, kw_only=True):
    """Settings that only flags can set."""

    config: str = ""
    config_dir: str = ""
    kubeconfig: str = ""
    bootstrap_kubeconfig: str = ""
    hostname_override: str = ""
    node_ip: str = ""
    cert_dir: str = "/var/lib/kubelet/pki"
    root_dir: str = DEFAULT_ROOT_DIRECTORY
    cloud_provider: str = ""
    runtime_cgroups: str = ""
    image_credential_provider_config: str = ""
    image_credential_provider_bin_dir: str = ""
    node_labels: Mapping[str, str] = field(default_factory=dict)
    seccomp_default: bool = False
    lock_file: str = ""
    exit_on_lock_contention: bool = False
    minimum_container_ttl_duration: timedelta = timedelta()
    maximum_dead_containers_per_container: int = 1
    maximum_dead_containers: int = -1
    experimental_mounter_path: str = ""
    experimental_allocatable_ignore_eviction: bool = False
    housekeeping_interval: timedelta = timedelta(seconds=10)

    @property
    def is_standalone(self) -> bool:
        """No API server: static pods only."""
        return not self.kubeconfig


def _flag(name: str, kind: FlagKind, section: str, text: str, *, deprecated: str = "") -> Flag:
    return Flag(name, kind, section, text, FlagTarget.FLAGS, name.replace("-", "_"), deprecated=deprecated)


_SOURCES: Final = "Where the configuration comes from"
_IDENTITY: Final = "The node and its API server"
_DATA: Final = "Data, plug-ins and processes"
_DEAD: Final = "Dead containers"
IGNORED_SECTION: Final = "Flags of cAdvisor, accepted without effect and deprecated"
_OTHER: Final = "Other"

_USE_EVICTION: Final = "Use --eviction-hard or --eviction-soft instead. Will be removed in a future version."
_REMOVED: Final = "will be removed in 1.25 or later."
_MISTAKEN: Final = (
    "This is a cadvisor flag that was mistakenly registered with the Kubelet. Due to legacy concerns, it will follow "
    "the standard CLI deprecation timeline before being removed."
)


def _cadvisor(name: str, kind: FlagKind, default: str, text: str) -> Flag:
    return Flag(name, kind, IGNORED_SECTION, text, deprecated=_MISTAKEN, default=default)


KUBELET_FLAGS: Final = (
    _flag("config", STRING, _SOURCES, "File with a KubeletConfiguration (YAML or JSON)"),
    _flag("config-dir", STRING, _SOURCES, "Directory with *.conf drop-ins, laid over --config in lexical order"),
    _flag("kubeconfig", STRING, _IDENTITY, "File that says how to reach the API server; without it: standalone mode"),
    _flag("bootstrap-kubeconfig", STRING, _IDENTITY, "Kubeconfig for the first client certificate"),
    _flag("hostname-override", STRING, _IDENTITY, "Name of the node instead of the host name"),
    _flag("node-ip", STRING, _IDENTITY, "Address of the node, or an IPv4 and an IPv6 address; 0.0.0.0 or :: prefers"),
    _flag("cloud-provider", STRING, _IDENTITY, "Empty, or external when a cloud controller completes the node"),
    _flag("node-labels", LABELS, _IDENTITY, "Labels of the node when it is registered, key=value,..."),
    _flag("root-dir", STRING, _DATA, "Directory for pods, volumes and checkpoints"),
    _flag("cert-dir", STRING, _DATA, "Directory for certificates and keys"),
    _flag("seccomp-default", BOOL, _DATA, "Use the RuntimeDefault seccomp profile where a pod names none"),
    _flag("runtime-cgroups", STRING, _DATA, "Absolute cgroup of the container runtime, for its stats"),
    _flag("image-credential-provider-config", STRING, _DATA, "File or directory with a CredentialProviderConfig"),
    _flag("image-credential-provider-bin-dir", STRING, _DATA, "Directory of the credential provider programs"),
    _flag("lock-file", STRING, _DATA, "File to lock before anything else; waits for its holder"),
    _flag(
        "exit-on-lock-contention", BOOL, _DATA, "End with code 0 when another process opens or deletes the lock file"
    ),
    _flag(
        "experimental-mounter-path",
        STRING,
        _DATA,
        "Program that mounts instead of mount",
        deprecated="will be removed in 1.25 or later. in favor of using CSI.",
    ),
    _flag(
        "experimental-allocatable-ignore-eviction",
        BOOL,
        _DATA,
        "Leave hard eviction thresholds out of node allocatable",
        deprecated=_REMOVED,
    ),
    _flag(
        "minimum-container-ttl-duration", DURATION, _DEAD, "Age before a dead container goes", deprecated=_USE_EVICTION
    ),
    _flag(
        "maximum-dead-containers-per-container",
        INT32,
        _DEAD,
        "Dead instances to keep of each container",
        deprecated=_USE_EVICTION,
    ),
    _flag(
        "maximum-dead-containers",
        INT32,
        _DEAD,
        "Dead containers to keep in all; negative: no limit",
        deprecated=_USE_EVICTION,
    ),
    _flag("housekeeping-interval", DURATION, _OTHER, "Interval between container housekeepings"),
    Flag("version", VERSION, _OTHER, "Print the version and end; --version=raw prints its parts"),
    Flag("help", BOOL, _OTHER, "Print this text and end", shorthand="h"),
    _cadvisor("application-metrics-count-limit", INT64, "100", "Application metrics to store per container"),
    _cadvisor("boot-id-file", STRING, "/proc/sys/kernel/random/boot_id", "Files to look for the boot id"),
    _cadvisor("container-hints", STRING, "/etc/cadvisor/container_hints.json", "Container hints file"),
    _cadvisor("containerd", STRING, "/run/containerd/containerd.sock", "containerd endpoint"),
    _cadvisor("containerd-namespace", STRING, "k8s.io", "containerd namespace"),
    _cadvisor("enable-load-reader", BOOL, "false", "CPU load reader"),
    _cadvisor("event-storage-age-limit", STRING, "default=0", "How long to store events, per type"),
    _cadvisor("event-storage-event-limit", STRING, "default=0", "How many events to store, per type"),
    _cadvisor("global-housekeeping-interval", DURATION, "1m0s", "Interval between global housekeepings"),
    _cadvisor("log-cadvisor-usage", BOOL, "false", "Log the usage of cAdvisor itself"),
    _cadvisor(
        "machine-id-file", STRING, "/etc/machine-id,/var/lib/dbus/machine-id", "Files to look for the machine id"
    ),
    _cadvisor("storage-driver-user", STRING, "root", "Database user"),
    _cadvisor("storage-driver-password", STRING, "root", "Database password"),
    _cadvisor("storage-driver-host", STRING, "localhost:8086", "Database host and port"),
    _cadvisor("storage-driver-db", STRING, "cadvisor", "Database name"),
    _cadvisor("storage-driver-table", STRING, "stats", "Table name"),
    _cadvisor("storage-driver-secure", BOOL, "false", "Secure connection to the database"),
    _cadvisor("storage-driver-buffer-duration", DURATION, "1m0s", "How long writes are buffered"),
)


def build_kubelet_flags(parsed: ParsedFlags) -> KubeletFlags:
    """Collect the values that belong to KubeletFlags; the root directory is cleaned."""
    targets = {flag.name: flag.field for flag in KUBELET_FLAGS if flag.target is FlagTarget.FLAGS}
    given = {targets[name]: value for name, value in parsed.values.items() if name in targets}
    flags = replace(KubeletFlags(), **given)  # the table pairs each flag with its field
    return replace(flags, root_dir=clean_path(flags.root_dir))


def clean_path(path: str) -> str:
    """Return the shortest form of a path, as Go's filepath.Clean gives it; an empty one stays empty."""
    cleaned = posixpath.normpath(path) if path else ""
    return f"/{cleaned.lstrip('/')}" if cleaned.startswith("//") else cleaned


def validate_kubelet_flags(flags: KubeletFlags) -> None:
    """Check the node labels, as upstream does before it reads any file."""
    unknown = sorted(key for key in flags.node_labels if not _may_set_label(key))
    if unknown:
        raise ConfigError(
            f"unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: [{' '.join(unknown)}]\n"
            "--node-labels in the 'kubernetes.io' namespace must begin with an allowed prefix "
            f"({', '.join(_ALLOWED_LABEL_NAMESPACES)}) or be in the specifically allowed set "
            f"({', '.join(_ALLOWED_LABELS)})"
        )
    problems = tuple(_label_problems(flags.node_labels))
    if problems:
        raise ConfigError(f"invalid node labels: {'; '.join(problems)}")


def check_start_flags(flags: KubeletFlags) -> None:
    """Check what upstream checks only when it starts, or never."""
    _check_root(flags.root_dir)
    if flags.cloud_provider not in ("", "external"):
        raise ConfigError(
            f'cloud provider "{flags.cloud_provider}" was specified, but built-in cloud providers are disabled. '
            "Please set --cloud-provider=external and migrate to an external cloud provider"
        )
    if flags.exit_on_lock_contention and not flags.lock_file:
        raise ConfigError("cannot exit on lock file contention: no lock file specified")
    if problem := find_cgroup_problem(flags.runtime_cgroups):
        raise ConfigError(f'--runtime-cgroups "{flags.runtime_cgroups}": {problem}')
    if flags.minimum_container_ttl_duration < timedelta():
        age = Duration.of(flags.minimum_container_ttl_duration).wire()
        raise ConfigError(f"invalid minimum garbage collection age: {age} (--minimum-container-ttl-duration)")
    if flags.housekeeping_interval <= timedelta():
        interval = Duration.of(flags.housekeeping_interval).wire()
        raise ConfigError(f"--housekeeping-interval {interval} must be greater than 0")


def choose_node_name(flags: KubeletFlags, *, hostname: str) -> str:
    """Return the name of the node: the override or the host's own name, trimmed and in lower case."""
    name = (flags.hostname_override or hostname).strip().lower()
    if not name:
        raise ConfigError("empty hostname is invalid: give the node a name with --hostname-override")
    if problems := dns_subdomain(name):
        # Names of static pods end in it, so with such a name no pod could ever be valid.
        source = "--hostname-override" if flags.hostname_override else "the host's name, without --hostname-override,"
        raise ConfigError(f'{source} "{name}" cannot be the name of a node: {"; ".join(problems)}')
    return name


def check_node_ips(flags: KubeletFlags) -> None:
    """Refuse `--node-ip` if it breaks a rule, or if nothing in it is an address: upstream would choose another one."""
    if not parse_node_ips(flags.node_ip, cloud_provider=flags.cloud_provider) and flags.node_ip.strip(", "):
        raise ConfigError(
            f'bad --node-ip "{flags.node_ip}": not an IP address: write one, or one of each family, or leave it out'
        )


def describe_left_out_ips(flags: KubeletFlags) -> Iterator[str]:
    """Return which parts of `--node-ip` are not used."""
    for part in _node_ip_parts(flags.node_ip):
        if parse_ip(part) is None:
            yield f'--node-ip: "{part}" is not an IP address and is left out'


def parse_node_ips(text: str, *, cloud_provider: str = "") -> tuple[IPv4Address | IPv6Address, ...]:
    """Return the addresses of `--node-ip`: none, one, or one of each family; what is no address is left out."""
    addresses = tuple(address for part in _node_ip_parts(text) if (address := parse_ip(part)) is not None)
    if len(addresses) > 2 or (len(addresses) == 2 and addresses[0].version == addresses[1].version):
        raise ConfigError(f'bad --node-ip "{text}": must contain either a single IP or a dual-stack pair of IPs')
    if len(addresses) == 2:
        if any(address in _UNSPECIFIED for address in addresses):
            raise ConfigError(f"bad --node-ip \"{text}\": dual-stack node IP cannot include '0.0.0.0' or '::'")
        if cloud_provider not in ("", "external"):
            raise ConfigError(f'bad --node-ip "{text}": dual-stack not supported in this configuration')
    return addresses


def _node_ip_parts(text: str) -> Iterator[str]:
    return (part.strip() for part in text.split(",") if part.strip())


def _check_root(path: str) -> None:
    if not path:
        raise ConfigError('invalid root directory "": --root-dir must not be empty')
    if not path.startswith("/"):
        # The paths in it go to the runtime, which runs elsewhere.
        raise ConfigError(f'invalid root directory "{path}": --root-dir must be an absolute path')
    if path == "/":
        raise ConfigError('invalid root directory "/": --root-dir must be a directory for klet alone')
    if not path.isprintable():
        raise ConfigError(f'invalid root directory "{path}": --root-dir must be printable UTF-8')
    if problem := find_path_problem(path):
        raise ConfigError(f'invalid root directory "{path}": --root-dir: {problem}')


def _may_set_label(key: str) -> bool:
    namespace = key.split("/", 1)[0] if "/" in key else ""
    if not any(_is_within(namespace, reserved) for reserved in ("kubernetes.io", "k8s.io")):
        return True
    return key in _ALLOWED_LABELS or any(_is_within(namespace, allowed) for allowed in _ALLOWED_LABEL_NAMESPACES)


def _is_within(namespace: str, parent: str) -> bool:
    return namespace == parent or namespace.endswith(f".{parent}")


def _label_problems(labels: Mapping[str, str]) -> Iterator[str]:
    for key, value in sorted(labels.items()):
        for text, found in ((key, label_key(key)), (value, label_value(value))):
            if found:
                yield f"'{text}' - {', '.join(found)}"
