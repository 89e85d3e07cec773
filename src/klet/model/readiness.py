"""When a container counts as started and as ready: probe results, and protection across restarts of the agent.

Containers that ran before the agent started keep what was reported of them until a probe says otherwise
(UpdatePodStatus of upstream's probe manager).
"""

from datetime import datetime, timedelta

from msgspec import Struct

from klet.model.probes import ProbeResult

RESTART_MARGIN = timedelta(seconds=10)
"""A container that started no earlier than this before the agent counts as new."""


def is_older_than_agent(started_at: datetime | None, agent_started: datetime | None) -> bool:
    """Return whether a container was running well before this run of the agent began."""
    return started_at is not None and agent_started is not None and started_at < agent_started - RESTART_MARGIN


class ProbeFacts(Struct, frozen=True, kw_only=True):
    """What is known of a running container's probes. A worker is a probe that is being run."""

    startup: ProbeResult | None = None
    readiness: ProbeResult | None = None
    has_startup_worker: bool = False
    has_readiness_worker: bool = False
    has_readiness_probe: bool = False
    was_started: bool = False
    """It was reported as started before."""
    is_older: bool = False
    """It is older than the agent."""
    was_ready: bool | None = None
    """What was last reported of this instance; None if it is new."""
    was_pod_ready: bool = False
    """The pod was last reported as ready."""


def is_started(facts: ProbeFacts) -> bool:
    """Return whether a running container has started."""
    if facts.startup is not None:
        return facts.startup is ProbeResult.SUCCESS
    return facts.was_started or not facts.has_startup_worker


def is_ready(facts: ProbeFacts) -> bool:
    """Return whether a running and started container is ready."""
    if facts.readiness is ProbeResult.SUCCESS:
        return True
    if facts.readiness is None and facts.was_ready is not None and facts.has_readiness_probe:
        # No probe has answered in this run of the agent; upstream uses the readiness of the whole pod here.
        return facts.was_ready
    if not facts.is_older:
        return not facts.has_readiness_worker
    if facts.has_readiness_probe and not facts.was_pod_ready:
        return False
    return facts.readiness is None or not facts.has_readiness_worker
