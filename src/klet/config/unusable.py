"""Values that upstream takes and then cannot use: it waits for a runtime that cannot be there, loops without a pause,
or leaves pods broken. klet refuses them before anything starts, and warns where upstream itself makes do.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Final, TypeAlias

import msgspec

from klet.api.times import Duration
from klet.api.validation.formats import cidr, dns_subdomain, dns_subdomain_with_underscore, parse_ip
from klet.config.configuration import KubeletConfiguration
from klet.config.configuration_flags import CONFIGURATION_FLAGS, get_field
from klet.config.places import (
    find_cgroup_problem,
    find_endpoint_problem,
    find_header_problems,
    find_path_problem,
    find_url_problem,
    hide_credentials,
    is_bare_path,
)

Problems: TypeAlias = Iterator[str]

CGROUP_DRIVERS: Final = ("cgroupfs", "systemd")
CONTENT_TYPES: Final = ("application/vnd.kubernetes.protobuf", "application/json", "application/cbor", "")
MOST_PROCESSES: Final = 4_194_304
"""Linux has no more, and refuses a higher limit for a cgroup."""

_ENDPOINTS: Final = ("containerRuntimeEndpoint", "imageServiceEndpoint")
_HEADERS: Final = "staticPodURLHeader"
_CGROUPS: Final = ("cgroupRoot", "kubeletCgroups", "systemCgroups", "kubeReservedCgroup", "systemReservedCgroup")
_PATHS: Final = (
    "staticPodPath",
    "resolvConf",
    "podLogsDir",
    "volumePluginDir",
    "tlsCertFile",
    "tlsPrivateKeyFile",
    "authentication.x509.clientCAFile",
)
_PAUSES: Final = (
    "fileCheckFrequency",
    "httpCheckFrequency",
    "nodeStatusUpdateFrequency",
    "cpuManagerReconcilePeriod",
    "runtimeRequestTimeout",
)
_LENGTHS: Final = ("nodeStatusReportFrequency", "imageMinimumGCAge", "evictionPressureTransitionPeriod")
_FLAG_OF: Final[Mapping[str, str]] = {flag.field: flag.name for flag in CONFIGURATION_FLAGS}


def find_unusable_values(config: KubeletConfiguration) -> Problems:
    """Name every value that cannot work."""
    broken = tuple(_control_characters(config))
    yield from broken
    if broken:
        # What follows quotes the values.
        return
    yield from _endpoints(config)
    yield from _static_pods(config)
    yield from _addresses(config)
    yield from _choices(config)
    yield from _intervals(config)
    yield from _cgroups(config)
    yield from _paths(config)
    yield from _amounts(config)


def describe_makeshifts(config: KubeletConfiguration) -> Problems:
    """Return warnings for what works, but hardly as intended."""
    for field in _ENDPOINTS:
        if is_bare_path(endpoint := _text(config, field)):
            advice = "please consider using full url format"
            yield f'{named(field)}: using "{endpoint}" as endpoint is deprecated, {advice}: unix://{endpoint}'
    for server in config.cluster_dns:
        if parse_ip(server) is None:
            yield f'{named("clusterDNS")}: "{server}" is not an IP address and is left out'
    for field in _PATHS:
        if (path := _text(config, field)) and not path.startswith("/"):
            yield f'{named(field)}: "{path}" is looked for in the directory in which klet was started'
    if config.healthz_port and config.healthz_port in (config.port, config.read_only_port):
        yield f"{named('healthzPort')} {config.healthz_port} is another server's port too: healthz may not be served"


def usable_servers(servers: Sequence[str]) -> tuple[str, ...]:
    """Return the name servers among the entries of clusterDNS, as Go writes addresses."""
    return tuple(str(address) for server in servers if (address := parse_ip(server)) is not None)


def named(field: str) -> str:
    """Return a field as messages name it, with its flag if it has one."""
    return f"{field} (--{_FLAG_OF[field]})" if field in _FLAG_OF else field


def _control_characters(config: KubeletConfiguration) -> Problems:
    for path, text in _texts(config, ""):
        if path.startswith(f"{_HEADERS}."):
            continue
        found = next((character for character in text if _is_unwritable(character)), None)
        if found is not None:
            yield (
                f"{named(path)} must be one line of UTF-8 text, without control characters (found U+{ord(found):04X})"
            )


def _texts(value: object, path: str) -> Iterator[tuple[str, str]]:
    """Yield every text in a value and where it is."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, msgspec.Struct):
        for field in msgspec.structs.fields(type(value)):
            yield from _texts(getattr(value, field.name), f"{path}.{field.encode_name}" if path else field.encode_name)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            yield path, key
            yield from _texts(inner, f"{path}.{key}")
    elif isinstance(value, tuple):
        for index, inner in enumerate(value):
            yield from _texts(inner, f"{path}[{index}]")


def _is_unwritable(character: str) -> bool:
    # Bytes that are not UTF-8 come from the command line as lone surrogates; no protocol of a kubelet can carry them.
    return character < " " or character == "\x7f" or "\ud800" <= character <= "\udfff"


def _endpoints(config: KubeletConfiguration) -> Problems:
    for field in _ENDPOINTS:
        endpoint = _text(config, field)
        if endpoint and (problem := find_endpoint_problem(endpoint)):
            yield f'{named(field)} "{endpoint}": {problem}'


def _static_pods(config: KubeletConfiguration) -> Problems:
    url = config.static_pod_url
    if url and (problem := find_url_problem(url)):
        yield f'{named("staticPodURL")} "{hide_credentials(url)}" {problem}'
    for problem in find_header_problems(config.static_pod_url_header):
        yield f"{named(_HEADERS)}: {problem}"


def _addresses(config: KubeletConfiguration) -> Problems:
    if parse_ip(config.address) is None:
        yield f'{named("address")} "{config.address}" must be an IP address; 0.0.0.0 means all of the machine'
    health = config.healthz_bind_address
    if parse_ip(health) is None and dns_subdomain(health.lower()):
        yield f'{named("healthzBindAddress")} "{health}" must be an IP address or the name of a host'
    if config.cluster_dns and not usable_servers(config.cluster_dns):
        shown = ", ".join(f'"{server}"' for server in config.cluster_dns)
        yield f"{named('clusterDNS')}: none of {shown} is an IP address: write addresses such as 10.96.0.10"
    if config.pod_cidr and any(cidr(part.strip()) for part in config.pod_cidr.split(",")):
        yield f'{named("podCIDR")} "{config.pod_cidr}" must be a network such as 10.244.0.0/24, or one of each family'
    domain = config.cluster_domain.removesuffix(".").lower()
    if domain and dns_subdomain_with_underscore(domain):
        yield f'{named("clusterDomain")} "{config.cluster_domain}" must be a domain such as cluster.local'
    if config.read_only_port and config.read_only_port == config.port:
        yield f"{named('readOnlyPort')} {config.port} is the port of the HTTPS server too: write another one, or 0"


def _choices(config: KubeletConfiguration) -> Problems:
    for field, known in (
        ("cgroupDriver", CGROUP_DRIVERS),
        ("contentType", CONTENT_TYPES),
    ):
        if (value := _text(config, field)) not in known:
            shown = ", ".join(f'"{each}"' for each in known)
            yield f'{named(field)} "{value}" must be one of: {shown}'


def _intervals(config: KubeletConfiguration) -> Problems:
    for fields, least, rule in (
        (_PAUSES, timedelta.resolution, "must be greater than 0"),
        (_LENGTHS, timedelta(), "must not be negative"),
    ):
        for field in fields:
            value = get_field(config, field)
            assert isinstance(value, timedelta)
            if value < least:
                yield f"{named(field)} {Duration.of(value).wire()} {rule}"


def _cgroups(config: KubeletConfiguration) -> Problems:
    for field in _CGROUPS:
        if problem := find_cgroup_problem(name := _text(config, field)):
            yield f'{named(field)} "{name}": {problem}'
    if config.system_cgroups and not config.system_cgroups.strip("/"):
        yield f'{named("systemCgroups")}: system container cannot be root ("/")'


def _paths(config: KubeletConfiguration) -> Problems:
    for field in _PATHS:
        if problem := find_path_problem(_text(config, field)):
            yield f"{named(field)}: {problem}"
    if config.pod_logs_dir == "/":
        yield f"{named('podLogsDir')} must not be the root of the file system: write a directory for pod logs alone"
    if bool(config.tls_cert_file) != bool(config.tls_private_key_file):
        yield f"{named('tlsCertFile')} and {named('tlsPrivateKeyFile')} belong together: set both or neither"


def _amounts(config: KubeletConfiguration) -> Problems:
    if config.pod_pids_limit > MOST_PROCESSES:
        limit = f"must not be more than {MOST_PROCESSES}, the most that Linux has"
        yield f"{named('podPidsLimit')} {config.pod_pids_limit} {limit}: write -1 for no limit of its own"
    for index, period in enumerate(config.shutdown_grace_period_by_pod_priority):
        if period.shutdown_grace_period_seconds < 0:
            seconds = period.shutdown_grace_period_seconds
            yield f"shutdownGracePeriodByPodPriority[{index}].shutdownGracePeriodSeconds {seconds} must not be negative"
    for index, reservation in enumerate(config.reserved_memory):
        if reservation.numa_node < 0 or any(amount.sign < 0 for amount in reservation.limits.values()):
            yield f"{named('reservedMemory')}: the NUMA node and the amounts of entry {index} must not be negative"
    taints = [f"{taint.key}:{taint.effect}" for taint in config.register_with_taints]
    for taint in sorted({taint for taint in taints if taints.count(taint) > 1}):
        yield f"{named('registerWithTaints')}: duplicated taints with the same key and effect: {taint}"


def _text(config: KubeletConfiguration, field: str) -> str:
    value = get_field(config, field)
    assert isinstance(value, str)
    return value
