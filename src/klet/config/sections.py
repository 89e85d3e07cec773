"""The parts of a KubeletConfiguration that are objects of their own.

Every default here is the empty value: the API's defaults are applied to the document before it becomes a struct
(`defaults.py`), because only a document can distinguish an unset field from a zero.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, TypeAlias

from msgspec import Meta, Struct, field

from klet.api.base import Int32, Int64
from klet.api.quantity import Quantity

UInt32: TypeAlias = Annotated[int, Meta(ge=0, le=2**32 - 1)]
TimeOrDuration: TypeAlias = Annotated[timedelta, Meta(extra={"number": "nanoseconds"})]
"""A duration that may be written as a number too; kubeadm does so."""

NOTHING = timedelta()


class Section(Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of a configuration: immutable, wire names in camel case."""


class X509Authentication(Section, frozen=True, kw_only=True):
    client_ca_file: str = field(name="clientCAFile", default="")


class WebhookAuthentication(Section, frozen=True, kw_only=True):
    enabled: bool = False
    cache_ttl: timedelta = field(name="cacheTTL", default=NOTHING)


class AnonymousAuthentication(Section, frozen=True, kw_only=True):
    enabled: bool = False


class Authentication(Section, frozen=True, kw_only=True):
    """How clients of the kubelet API authenticate."""

    x509: X509Authentication = X509Authentication()
    webhook: WebhookAuthentication = WebhookAuthentication()
    anonymous: AnonymousAuthentication = AnonymousAuthentication()


class WebhookAuthorization(Section, frozen=True, kw_only=True):
    cache_authorized_ttl: timedelta = field(name="cacheAuthorizedTTL", default=NOTHING)
    cache_unauthorized_ttl: timedelta = field(name="cacheUnauthorizedTTL", default=NOTHING)


class Authorization(Section, frozen=True, kw_only=True):
    """What they may do there."""

    mode: str = ""
    webhook: WebhookAuthorization = WebhookAuthorization()


class CrashLoopBackOff(Section, frozen=True, kw_only=True):
    max_container_restart_period: timedelta | None = None


LIMITED_SWAP = "LimitedSwap"
"""The swap behaviour with which pods get a share of the machine's swap."""


class MemorySwap(Section, frozen=True, kw_only=True):
    swap_behavior: str = ""


class UserNamespaces(Section, frozen=True, kw_only=True):
    ids_per_pod: Int64 = 0


class MemoryReservation(Section, frozen=True, kw_only=True):
    """Memory kept back on one NUMA node."""

    numa_node: Int32 = 0
    limits: Mapping[str, Quantity] = {}


class ShutdownGracePeriodByPodPriority(Section, frozen=True, kw_only=True):
    priority: Int32 = 0
    shutdown_grace_period_seconds: Int64 = 0


class Tracing(Section, frozen=True, kw_only=True):
    endpoint: str | None = None
    sampling_rate_per_million: Int32 | None = None


class VModuleItem(Section, frozen=True, kw_only=True):
    """A verbosity for the files that match a pattern."""

    file_pattern: str = ""
    verbosity: UInt32 = 0


class LogStreams(Section, frozen=True, kw_only=True):
    """How one log format splits and buffers its output."""

    split_stream: bool = False
    info_buffer_size: Quantity | None = None


class LogFormatOptions(Section, frozen=True, kw_only=True):
    text: LogStreams = LogStreams()
    json: LogStreams = LogStreams()


class Logging(Section, frozen=True, kw_only=True):
    """How the agent logs."""

    format: str = ""
    flush_frequency: TimeOrDuration = NOTHING
    verbosity: UInt32 = 0
    vmodule: tuple[VModuleItem, ...] = ()
    options: LogFormatOptions = LogFormatOptions()
