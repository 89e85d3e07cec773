"""Calls of plugins: any failure concerns the one volume alone, and is retried."""

import logging
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from klet.errors import KletError
from klet.model.foreign_text import shorten
from klet.volumes.errors import MapStep, MountStep, StepFailed, UncertainProgress
from klet.volumes.names import VolumeName

T = TypeVar("T")

logger = logging.getLogger(__name__)

_LONGEST_ERROR: Final = 512


async def carry_out(operation: Awaitable[T], volume: VolumeName) -> T:
    """Run a plugin's operation. After a bug in one nobody knows what it has done."""
    try:
        return await operation
    except KletError:
        raise
    except Exception as error:
        logger.exception("A volume could not be handled", extra={"volume": volume})
        raise UncertainProgress(shorten(f"{type(error).__name__}: {error}", _LONGEST_ERROR)) from error


@contextmanager
def during(step: MountStep | MapStep) -> Iterator[None]:
    """Name the step of which an error is, unless it has a name already."""
    try:
        yield
    except StepFailed:
        raise
    except KletError as error:
        raise StepFailed(step, str(error)) from error
