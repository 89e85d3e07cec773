"""A pod's name resolution: the node's resolv.conf, the cluster's DNS and the pod's own settings (network/dns)."""

from collections.abc import Sequence

from msgspec import Struct

from klet.api.pod import Pod, PodDNSConfig
from klet.errors import KletError
from klet.model.network import DnsConfig
from klet.model.pods import format_pod
from klet.model.reasons import Reason

MAX_NAMESERVERS = 3
MAX_SEARCHES = 32
MAX_SEARCH_LENGTH = 253
MAX_SEARCH_LINE = 2048
CLUSTER_SEARCHES = 3
"""So many searches of a pod are the cluster's."""


class ResolvConfError(KletError):
    """A resolv.conf that cannot be used."""


class DnsSettings(Struct, frozen=True, kw_only=True):
    """What the node knows of names."""

    cluster_dns: tuple[str, ...] = ()
    cluster_domain: str = ""
    node_ips: tuple[str, ...] = ()


class DnsWarning(Struct, frozen=True):
    """Something a pod did not get, with the reason that events have for it."""

    reason: Reason
    message: str


class DnsDecision(Struct, frozen=True):
    """A pod's configuration, and warnings about what had to be left out."""

    config: DnsConfig
    warnings: tuple[DnsWarning, ...] = ()


def parse_resolv_conf(text: str) -> DnsConfig:
    """Read a resolv.conf: servers and options add up, of `search` lines the last one counts."""
    servers: list[str] = []
    searches: tuple[str, ...] = ()
    options: dict[str, str] = {}
    for line in text.splitlines():
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        match words[0]:
            case "nameserver":
                if len(words) == 1:
                    raise ResolvConfError("nameserver list is empty ")
                servers.append(words[1])
            case "search":
                searches = tuple(word.removesuffix(".") for word in words[1:] if word != ".")
            case "options":
                options.update({word.partition(":")[0]: word for word in words[1:]})
            case _:
                pass  # domain, sortlist and anything else do not reach pods
    return DnsConfig(tuple(servers), searches, tuple(options.values()))


def find_excess(host: DnsConfig, *, file: str, has_cluster_domain: bool) -> str | None:
    """Return which of the node's searches pods do not get: the first limit that they exceed, in upstream's words."""
    most = MAX_SEARCHES - CLUSTER_SEARCHES if has_cluster_domain else MAX_SEARCHES
    if len(host.searches) > most:
        return f"Resolv.conf file '{file}' contains search line consisting of more than {most} domains!"
    if any(len(search) > MAX_SEARCH_LENGTH for search in host.searches):
        limit = f"more than allowed {MAX_SEARCH_LENGTH} chars!"
        return f'Resolv.conf file "{file}" contains a search path which length is {limit}'
    if len(" ".join(host.searches)) > MAX_SEARCH_LINE:
        limit = f"more than allowed {MAX_SEARCH_LINE} chars!"
        return f"Resolv.conf file '{file}' contains search line which length is {limit}"
    return None


def decide_dns(pod: Pod, host: DnsConfig | None, settings: DnsSettings) -> DnsDecision:
    """Combine policy, node, cluster and pod, and keep within what resolvers accept. None: the node names no file."""
    base, warnings = _base(pod, host, settings)
    if pod.spec.dns_config is not None:
        base = _merge(base, pod.spec.dns_config)
    limited = _limit(base)
    return DnsDecision(limited.config, (*warnings, *limited.warnings))


def _base(pod: Pod, host: DnsConfig | None, settings: DnsSettings) -> tuple[DnsConfig, tuple[DnsWarning, ...]]:
    policy = pod.spec.dns_policy
    if policy == "None":
        return DnsConfig(), ()
    if policy == "Default" or (policy == "ClusterFirst" and pod.spec.host_network):
        return _of_host(host, settings), ()
    if not settings.cluster_dns:
        message = (
            f'pod: "{format_pod(pod)}". kubelet does not have ClusterDNS IP configured and cannot create Pod using '
            '"ClusterFirst" policy. Falling back to "Default" policy.'
        )
        return _of_host(host, settings), (DnsWarning(Reason.MISSING_CLUSTER_DNS, message),)
    domain = settings.cluster_domain
    own = (f"{pod.metadata.namespace}.svc.{domain}", f"svc.{domain}", domain) if domain else ()
    return DnsConfig(settings.cluster_dns, _unique((*own, *(host.searches if host else ()))), ("ndots:5",)), ()


def _of_host(host: DnsConfig | None, settings: DnsSettings) -> DnsConfig:
    """Return the node's own resolution; without a file, a resolver on the node itself in each of its families."""
    if host is not None:
        return host
    local = tuple("::1" if ":" in ip else "127.0.0.1" for ip in settings.node_ips)
    return DnsConfig(local or ("127.0.0.1",), (".",))


def _merge(base: DnsConfig, wanted: PodDNSConfig) -> DnsConfig:
    options = {option.partition(":")[0]: option for option in base.options}
    for option in wanted.options:
        options[option.name] = f"{option.name}:{option.value}" if option.value else option.name
    return DnsConfig(
        _unique((*base.servers, *wanted.nameservers)),
        _unique((*base.searches, *wanted.searches)),
        tuple(options.values()),
    )


def _limit(config: DnsConfig) -> DnsDecision:
    warnings = []
    servers = config.servers[:MAX_NAMESERVERS]
    if servers != config.servers:
        line = " ".join(servers)
        message = (
            "Nameserver limits were exceeded, some nameservers have been omitted, "
            f"the applied nameserver line is: {line}"
        )
        warnings.append(DnsWarning(Reason.DNS_CONFIG_FORMING, message))
    searches = [search for search in config.searches[:MAX_SEARCHES] if len(search) <= MAX_SEARCH_LENGTH]
    while len(" ".join(searches)) > MAX_SEARCH_LINE:
        searches.pop()
    if tuple(searches) != config.searches:
        line = " ".join(searches)
        message = (
            f"Search Line limits were exceeded, some search paths have been omitted, the applied search line is: {line}"
        )
        warnings.append(DnsWarning(Reason.DNS_CONFIG_FORMING, message))
    return DnsDecision(DnsConfig(servers, tuple(searches), config.options), tuple(warnings))


def _unique(items: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(items))
