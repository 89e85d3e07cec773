"""Plugins that register with the node through `plugins_registry`: what they say of themselves, and the rules of each
type. Pure.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

from klet.api.validation.resources import is_extended_resource
from klet.model.downward import quoted
from klet.model.foreign_text import LONGEST_WORD, shorten

DEVICE_PLUGIN_VERSION: Final = "v1beta1"
DRA_SERVICES: Final = ("v1.DRAPlugin", "v1beta1.DRAPlugin")
"""The gRPC services of DRA drivers that a node can call, the newest first."""


class PluginType(StrEnum):
    """Which part of the node a plugin is for."""

    CSI = "CSIPlugin"
    DEVICE = "DevicePlugin"
    DRA = "DRAPlugin"


class PluginInfo(Struct, frozen=True, kw_only=True):
    """What a plugin says of itself."""

    type: str
    name: str
    endpoint: str
    """The socket of its service."""
    versions: tuple[str, ...] = ()


class DraVersion(Struct, frozen=True):
    """The gRPC service by which a DRA driver is called."""

    service: str


class VersionProblem(Struct, frozen=True):
    """Why a plugin cannot be used, in upstream's words."""

    why: str


def find_device_plugin_problem(plugin: PluginInfo) -> str | None:
    """Return what keeps a device plugin from being registered."""
    if DEVICE_PLUGIN_VERSION not in plugin.versions:
        return (
            f"manager version, {DEVICE_PLUGIN_VERSION}, is not among plugin supported versions "
            f"[{shorten(' '.join(plugin.versions), LONGEST_WORD)}]"
        )
    if not is_extended_resource(plugin.name):
        return (
            f'invalid name of device plugin socket: the ResourceName "{shorten(plugin.name, LONGEST_WORD)}" is invalid'
        )
    return None


def choose_dra_service(plugin: PluginInfo) -> DraVersion | VersionProblem:
    """Choose the service of a DRA driver: the first of its own list that the node can call."""
    for service in plugin.versions:
        if service in DRA_SERVICES:
            return DraVersion(service)
    if plugin.versions:
        listed = shorten(quoted_list(plugin.versions), LONGEST_WORD)
        why = (
            f"none of services supported by the plugin ({listed}) are supported by the kubelet "
            f"({quoted_list(DRA_SERVICES)})"
        )
    else:
        why = "empty list of supported gRPC services (aka supported versions)"
    name, endpoint = (shorten(text, LONGEST_WORD) for text in (plugin.name, plugin.endpoint))
    where = f"DRA driver plugin {name} at endpoint {endpoint}"
    return VersionProblem(f"invalid supported gRPC versions of {where}: {why}")


def quoted_list(texts: Sequence[str]) -> str:
    """Return texts as Go prints a list of quoted ones."""
    return f"[{' '.join(map(quoted, texts))}]"
