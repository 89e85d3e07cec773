"""What the reconciler does next with a volume: with that of a pod, and with its device. Pure."""

from collections.abc import Collection, Iterable
from enum import Enum, auto
from typing import TypeAlias

from msgspec import Struct

from klet.api.quantity import Quantity
from klet.errors import KletError
from klet.volumes.devices import DeviceState, NodeDevice
from klet.volumes.errors import TransientFailure, UncertainProgress
from klet.volumes.operations import TICK
from klet.volumes.state import ActualMount, DesiredMount, MountState


class Mount(Struct, frozen=True):
    """Set the volume up, or bring it up to date."""

    is_remount: bool


class Unmount(Struct, frozen=True):
    """Take the volume down."""


class Expand(Struct, frozen=True):
    """Let the filesystem follow the volume, which has grown."""


class AttachWay(Enum):
    """How a device gets on the board."""

    NOT_NEEDED = auto()
    """It is there, or its kind has none."""
    WAIT = auto()
    """Something else has to happen first, and will wake it."""
    ADD = auto()
    """It needs no attaching."""
    VERIFY = auto()
    """The controller seems to have attached it: the node's status at the API server decides."""
    ATTACH = auto()
    """This agent attaches."""


class Attach(Struct, frozen=True):
    """Get the device on the board."""

    way: AttachWay


class Leave(Struct, frozen=True):
    """Nothing to do, until an instant of the monotonic clock if there is one."""

    until: float | None = None


Step: TypeAlias = Mount | Unmount | Expand | Attach | Leave


class UnmountDevice(Struct, frozen=True):
    """Unmount the device: no pod has the volume any more."""


class DetachDevice(Struct, frozen=True):
    """Detach the device: this agent has attached it."""


class ForgetDevice(Struct, frozen=True):
    """Take it off the board: now a controller may detach it."""


DeviceStep: TypeAlias = UnmountDevice | DetachDevice | ForgetDevice | Leave


def decide_step(
    desired: DesiredMount | None,
    actual: ActualMount | None,
    device: NodeDevice | None,
    *,
    is_leaving: bool,
    attach: AttachWay,
    now: float,
) -> Step:
    """Return what to do with one volume of one pod. Only a terminated pod loses volumes."""
    if is_leaving:
        return Unmount() if actual is not None else Leave()
    if desired is None:
        return Leave()
    if actual is None or actual.state is MountState.UNCERTAIN:
        if device is not None and has_other_label(desired, device):
            return Leave()  # the end of the unmount, for the pod that had it before, wakes this one
        match attach:
            case AttachWay.NOT_NEEDED:
                return Mount(is_remount=False)
            case AttachWay.WAIT:
                # Without a back-off: what it waits for wakes it.
                return Leave()
            case _:
                return Attach(attach)
    if desired.remounts:
        is_due = actual.refresh_at is not None and now > actual.refresh_at - TICK
        if is_due or actual.revision != desired.revision:
            return Mount(is_remount=True)
    if device is not None and needs_expansion(desired, device):
        return Expand()
    return Leave(until=actual.refresh_at)


def decide_attach(
    desired: DesiredMount | None,
    device: NodeDevice | None,
    *,
    is_reported: bool,
    attached: Collection[str] | None,
    by_agent: bool,
) -> AttachWay:
    """Return how the device of a desired volume gets on the board.

    `attached` is what the node's status lists as last seen, None while that is not known. Upstream: nothing is mounted
    before the node's status reports it in use, so that no controller detaches it meanwhile.
    """
    if desired is None or not desired.is_staged or device is not None:
        return AttachWay.NOT_NEEDED
    if desired.is_attachable is False:
        return AttachWay.ADD
    if desired.is_attachable is None:
        return AttachWay.WAIT
    if by_agent:
        return AttachWay.ATTACH
    if not is_reported or (attached is not None and desired.key.volume not in attached):
        return AttachWay.WAIT
    return AttachWay.VERIFY


def has_other_label(desired: DesiredMount, device: NodeDevice) -> bool:
    """Return whether the device is mounted with another SELinux label than the pod's: it has to be unmounted first."""
    return desired.is_labelled and device.may_be_mounted and device.label not in {None, desired.label}


def find_conflict(wanted: DesiredMount, others: Iterable[DesiredMount]) -> DesiredMount | None:
    """Return the part of a pod with another SELinux label, if there is one. It matters if the volume is labelled."""
    if wanted.meant_label is None:
        return None
    return next((each for each in others if each.key != wanted.key and each.meant_label != wanted.meant_label), None)


def needs_expansion(desired: DesiredMount, device: NodeDevice) -> bool:
    """Return whether a mounted volume has grown, and its filesystem has not."""
    wanted = desired_size(desired)
    if wanted is None or device.size is None or device.grows_unused_only or not desired.is_expandable:
        return False
    return bool(device.size) and device.size < wanted


def desired_size(desired: DesiredMount) -> Quantity | None:
    """Return how large the volume is; None for one that never grows here."""
    spec = desired.spec
    if spec.persistent is None or spec.read_only:
        return None
    return spec.persistent.spec.capacity.get("storage")


def decide_device_step(
    device: NodeDevice | None, *, is_used: bool, is_wanted: bool, may_release: bool, awaits_node: bool, by_agent: bool
) -> DeviceStep:
    """Return what to do with a device.

    `may_release` is whether all pods of this node are known: a device that a previous run left may be one of theirs.
    `awaits_node` is whether the node's status has not been read since then.
    """
    if device is None or is_used or is_wanted:
        return Leave()
    if device.is_reconstructed and (awaits_node or not may_release):
        return Leave()
    if device.may_be_mounted:
        return UnmountDevice()
    if by_agent and device.is_attachable:
        return DetachDevice()
    return ForgetDevice()


def decide_device_state(before: DeviceState, error: KletError, *, is_reconstructed: bool) -> DeviceState:
    """Return the state of a device after mounting it has failed."""
    if before is DeviceState.MOUNTED or isinstance(error, TransientFailure):
        return before
    if isinstance(error, UncertainProgress):
        return DeviceState.UNCERTAIN
    # Final. What a previous run left may still be there, though this try has done nothing.
    return before if is_reconstructed else DeviceState.NOT_MOUNTED


def decide_mount_state(before: MountState | None, error: KletError, *, is_reconstructed: bool) -> MountState | None:
    """Return the state of a volume of a pod after setting it up has failed; None for one that is not mounted."""
    if before is MountState.MOUNTED or isinstance(error, TransientFailure):
        return before
    if isinstance(error, UncertainProgress):
        return MountState.UNCERTAIN
    return before if is_reconstructed else None
