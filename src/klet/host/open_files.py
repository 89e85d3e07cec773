"""How many files and connections the agent may have open at once (RLIMIT_NOFILE)."""

import logging
import resource

logger = logging.getLogger(__name__)


def limits_to_try(wanted: int, *, hard: int) -> tuple[tuple[int, int], ...]:
    """Return soft and hard limits, the better first: as many as wanted, or as many as this process may have."""
    within = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    return ((wanted, wanted), (within, hard))


def allow_open_files(wanted: int) -> None:
    """Set the limit. A failure to raise it is logged, and does not stop the agent."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for limits in limits_to_try(wanted, hard=hard):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        except (OSError, ValueError) as error:
            extra = {"wanted": limits[0], "allowed": hard, "error": str(error)}
            logger.info("Failed to set rlimit on max file handles", extra=extra)
        else:
            return
