"""Eviction thresholds as the configuration writes them: signals, amounts, grace periods, minimum reclaim."""

import re
import struct
from collections.abc import Iterator, Mapping
from datetime import timedelta
from enum import StrEnum

from msgspec import Struct

from klet.api.quantity import Quantity
from klet.api.times import Duration
from klet.config.configuration import KubeletConfiguration
from klet.config.errors import ConfigError, suffixed


class Signal(StrEnum):
    """What can run low."""

    MEMORY_AVAILABLE = "memory.available"
    ALLOCATABLE_MEMORY_AVAILABLE = "allocatableMemory.available"
    NODEFS_AVAILABLE = "nodefs.available"
    NODEFS_INODES_FREE = "nodefs.inodesFree"
    IMAGEFS_AVAILABLE = "imagefs.available"
    IMAGEFS_INODES_FREE = "imagefs.inodesFree"
    CONTAINERFS_AVAILABLE = "containerfs.available"
    CONTAINERFS_INODES_FREE = "containerfs.inodesFree"
    PID_AVAILABLE = "pid.available"


class Amount(Struct, frozen=True):
    """An absolute quantity, or a share of the capacity as a 32-bit float (1.0 is all of it)."""

    quantity: Quantity | None = None
    share: float = 0.0


class Threshold(Struct, frozen=True):
    """Evict when less than this is left, for as long as the grace period."""

    signal: Signal
    amount: Amount
    grace_period: timedelta = timedelta()
    minimum_reclaim: Amount | None = None

    @property
    def is_hard(self) -> bool:
        return self.grace_period == timedelta()


_NUMBER = re.compile(r"[-+]?([0-9]+(\.[0-9]*)?|\.[0-9]+)")


def parse_thresholds(config: KubeletConfiguration, *, ignore_allocatable: bool = False) -> tuple[Threshold, ...]:
    """Return all thresholds of a configuration: hard, soft, then the allocatable twins of hard memory thresholds."""
    with suffixed(": see evictionMinimumReclaim (--eviction-minimum-reclaim)"):
        reclaim = dict(_minimum_reclaims(config.eviction_minimum_reclaim))
    with suffixed(": see evictionHard (--eviction-hard)"):
        hard = tuple(_thresholds(config.eviction_hard, {}, reclaim))
    with suffixed(": see evictionSoftGracePeriod (--eviction-soft-grace-period)"):
        grace_periods = _grace_periods(config)
    with suffixed(": see evictionSoft (--eviction-soft)"):
        soft = tuple(_thresholds(config.eviction_soft, grace_periods, reclaim, soft=True))
    twins: tuple[Threshold, ...] = ()
    if "pods" in config.enforce_node_allocatable and not ignore_allocatable:
        twins = tuple(
            Threshold(Signal.ALLOCATABLE_MEMORY_AVAILABLE, found.amount, minimum_reclaim=found.minimum_reclaim)
            for found in hard
            if found.signal is Signal.MEMORY_AVAILABLE
        )
    return (*hard, *soft, *twins)


def _thresholds(
    written: Mapping[str, str],
    grace_periods: Mapping[Signal, timedelta],
    reclaim: Mapping[Signal, Amount],
    *,
    soft: bool = False,
) -> Iterator[Threshold]:
    for name, text in sorted(written.items()):
        signal = _signal(name)
        amount = _threshold_amount(signal, text)
        if amount is None:
            continue
        if soft and signal not in grace_periods:
            raise ConfigError(f"grace period must be specified for the soft eviction threshold {signal}")
        yield Threshold(signal, amount, grace_periods.get(signal, timedelta()), reclaim.get(signal))


def _threshold_amount(signal: Signal, text: str) -> Amount | None:
    # The two shares that switch a threshold off are compared as text.
    if text in ("0%", "100%"):
        return None
    if text.endswith("%"):
        share = _share(text)
        if share < 0:
            raise ConfigError(f"eviction percentage threshold {signal} must be >= 0%: {text}")
        if share > 1:
            raise ConfigError(f"eviction percentage threshold {signal} must be <= 100%: {text}")
        return Amount(share=share)
    quantity = _quantity(text)
    if quantity.sign <= 0:
        raise ConfigError(f"eviction threshold {signal} must be positive: {quantity}")
    return Amount(quantity)


def _grace_periods(config: KubeletConfiguration) -> Mapping[Signal, timedelta]:
    periods: dict[Signal, timedelta] = {}
    for name, text in sorted(config.eviction_soft_grace_period.items()):
        signal = _signal(name)
        try:
            period = Duration.parse(text)
        except ValueError as error:
            raise ConfigError(str(error)) from error
        if period < timedelta():
            raise ConfigError(f"invalid eviction grace period specified: {text}, must be a positive value")
        periods[signal] = period
    return periods


def _minimum_reclaims(written: Mapping[str, str]) -> Iterator[tuple[Signal, Amount]]:
    for name, text in sorted(written.items()):
        signal = _signal(name)
        if text.endswith("%"):
            share = _share(text)
            if share <= 0:
                raise ConfigError(f"eviction percentage minimum reclaim {signal} must be positive: {text}")
            yield signal, Amount(share=share)
        else:
            quantity = _quantity(text)
            if quantity.sign < 0:
                raise ConfigError(f"negative eviction minimum reclaim specified for {signal}")
            yield signal, Amount(quantity)


def _signal(name: str) -> Signal:
    try:
        return Signal(name)
    except ValueError as error:
        raise ConfigError(f"unsupported eviction signal {name}") from error


def _share(text: str) -> float:
    number = text.removesuffix("%")
    if not _NUMBER.fullmatch(number):
        raise ConfigError(f'strconv.ParseFloat: parsing "{number}": invalid syntax')
    # Upstream divides 32-bit floats, and the amounts that users see come out of that.
    return _float32(_float32(float(number)) / 100)


def _float32(value: float) -> float:
    (rounded,) = struct.unpack("f", struct.pack("f", value))
    return float(rounded)


def _quantity(text: str) -> Quantity:
    try:
        return Quantity.parse(text)
    except ValueError as error:
        raise ConfigError(str(error)) from error
