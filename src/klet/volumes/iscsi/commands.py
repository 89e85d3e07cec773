"""The arguments of iscsiadm, in upstream's order, and what is read from its output. Pure."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from msgspec import Struct

from klet.volumes.errors import VolumeSetupError
from klet.volumes.iscsi.disk import IscsiDisk

SESSION_EXISTS: Final = 15
"""The exit code of iscsiadm for what a session is using already."""
NOTHING_FOUND: Final = 21
NO_SESSION: Final = 2

_DISCOVERY_KEYS: Final = tuple(
    f"discovery.sendtargets.auth.{name}" for name in ("username", "password", "username_in", "password_in")
)
_SESSION_KEYS: Final = tuple(
    f"node.session.auth.{name}" for name in ("username", "password", "username_in", "password_in")
)
_EMPTY: Final = "<empty>"
_SETTING: Final = re.compile(r"(iface\.[a-z0-9_.]+) = (\S*)\s*")
_IMMUTABLE: Final = "iface.iscsi_ifacename"


class LoginStep(Struct, frozen=True, kw_only=True):
    """One call of iscsiadm on the way into a target."""

    arguments: tuple[str, ...]
    failure: str = ""
    """What an error begins with; empty if the login goes on without it."""
    undo: tuple[str, ...] = ()
    """What is called after it failed."""


def plan_login(disk: IscsiDisk, portal: str, secret: Mapping[str, bytes]) -> tuple[LoginStep, ...]:
    """Return the calls that find a target at a portal and log in to it, up to the first one that fails."""
    return (*_discovery(disk, portal, secret), *_session(disk, portal, secret))


def _discovery(disk: IscsiDisk, portal: str, secret: Mapping[str, bytes]) -> Iterator[LoginStep]:
    database = ("-m", "discoverydb", "-t", "sendtargets", "-p", portal, "-I", disk.interface)
    yield LoginStep(arguments=(*database, "-o", "new"))
    if disk.chap_discovery:
        failure = f"iscsi: failed to update discoverydb to portal {portal} error"
        update = (*database, "-o", "update", "-n")
        yield LoginStep(arguments=(*update, "discovery.sendtargets.auth.authmethod", "-v", "CHAP"), failure=failure)
        for key, value in _settings(_DISCOVERY_KEYS, secret):
            yield LoginStep(arguments=(*update, key, "-v", value), failure=failure)
    yield LoginStep(
        arguments=(*database, "--discover"),
        failure=f"iscsi: failed to sendtargets to portal {portal}",
        undo=(*database, "-o", "delete"),
    )


def _session(disk: IscsiDisk, portal: str, secret: Mapping[str, bytes]) -> Iterator[LoginStep]:
    node = ("-m", "node", "-p", portal, "-T", disk.iqn, "-I", disk.interface)
    update = (*node, "-o", "update", "-n")
    # Otherwise all logical units of the target would appear, those of other nodes, too.
    yield LoginStep(arguments=(*update, "node.session.scan", "-v", "manual"))
    if disk.chap_session:
        failure = f"iscsi: failed to update iscsi node to portal {portal} error"
        yield LoginStep(arguments=(*update, "node.session.auth.authmethod", "-v", "CHAP"), failure=failure)
        for key, value in _settings(_SESSION_KEYS, secret):
            yield LoginStep(arguments=(*update, key, "-v", value), failure=failure)
    yield LoginStep(
        arguments=(*node, "--login"),
        failure="iscsi: failed to attach disk: Error",
        undo=("-m", "node", "-p", portal, "-I", disk.interface, "-T", disk.iqn, "-o", "delete"),
    )
    # The machine must not log in by itself when it boots.
    startup = ("-o", "update", "-n", "node.startup", "-v", "manual")
    yield LoginStep(arguments=("-m", "node", "-p", portal, "-T", disk.iqn, *startup))


def plan_logout(disk: IscsiDisk) -> tuple[tuple[str, ...], ...]:
    """Return the calls that log out of a target, whether the ones before have failed or not."""
    calls: list[tuple[str, ...]] = []
    for portal in disk.portals:
        node = ("-m", "node", "-p", portal, "-T", disk.iqn)
        calls.append((*node, "--logout", "-I", disk.interface))
        calls.append((*node, "-o", "delete", "-I", disk.interface))
    if disk.initiator:
        calls.append(delete_interface(disk.interface))
    return tuple(calls)


def show_interface(name: str) -> tuple[str, ...]:
    return ("-m", "iface", "-I", name, "-o", "show")


def new_interface(name: str) -> tuple[str, ...]:
    return ("-m", "iface", "-I", name, "-o", "new")


def delete_interface(name: str) -> tuple[str, ...]:
    return ("-m", "iface", "-I", name, "-o", "delete")


def update_interface(name: str, settings: Mapping[str, str]) -> tuple[tuple[str, ...], ...]:
    return tuple(("-m", "iface", "-I", name, "-o", "update", "-n", key, "-v", value) for key, value in settings.items())


def read_interface(output: bytes) -> Mapping[str, str]:
    """Return the settings of an interface that can be given to another one."""
    found = {}
    for line in output.decode(errors="replace").splitlines():
        matched = _SETTING.fullmatch(line)
        if matched is not None and matched[1] != _IMMUTABLE and matched[2] not in {"", _EMPTY}:
            found[matched[1]] = matched[2]
    return found


def device_pattern(disk: IscsiDisk, portal: str, *, transport: str) -> re.Pattern[str]:
    """Return how udev calls the disk in `/dev/disk/by-path`."""
    if not transport:
        raise VolumeSetupError(f"could not parse iface file for {disk.base_interface}")
    name = re.escape(f"ip-{portal}-iscsi-{disk.iqn}-lun-{disk.lun}")
    return re.compile(name if transport == "tcp" else f"pci-.*-{name}")


def shown_device(disk: IscsiDisk, portal: str, *, transport: str) -> str:
    """Return the same for messages."""
    way = "ip" if transport == "tcp" else "pci-*-ip"
    return f"/dev/disk/by-path/{way}-{portal}-iscsi-{disk.iqn}-lun-{disk.lun}"


def _settings(keys: tuple[str, ...], secret: Mapping[str, bytes]) -> Iterator[tuple[str, str]]:
    for key in keys:
        value = secret.get(key, b"")
        if not value:
            continue
        try:
            text = value.decode()
        except UnicodeDecodeError as error:
            raise VolumeSetupError(f"the value of {key} in the secret is no text") from error
        if "\0" in text:
            raise VolumeSetupError(f"the value of {key} in the secret holds a NUL byte")
        yield key, text
