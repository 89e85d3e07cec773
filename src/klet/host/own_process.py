"""What the agent asks of the kernel for itself: how many files it may have open, and when it is killed for memory."""

import logging
import resource
from pathlib import Path

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


def set_oom_score(score: int, path: Path = Path("/proc/self/oom_score_adj")) -> None:
    """Set how early the kernel kills the agent when memory is short. A failure is only logged."""
    try:
        path.write_text(str(score))
    except OSError as error:
        # Without CAP_SYS_RESOURCE no process may lower its score.
        logger.info("Failed to ApplyOOMScoreAdj", extra={"score": score, "error": str(error)})
