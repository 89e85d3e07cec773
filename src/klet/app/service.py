"""The service manager that may have started the agent: notified when the agent is up, then by its watchdog."""

import logging
import os

from klet.app.ports import BasePorts
from klet.app.wiring import Agent
from klet.host.systemd_notify import READY, NotifyError, find_service_manager, read_watchdog
from klet.model.roles import Part
from klet.node.watchdog import Watchdog, check_allowed

logger = logging.getLogger(__name__)


def tell_ready() -> None:
    """Notify the service manager that the agent is up; a failure must not stop the agent."""
    try:
        find_service_manager(os.environ).notify(READY)
    except NotifyError as error:
        logger.warning("The service manager was not notified that the agent is up", extra={"error": str(error)})


def build_watchdog(base: BasePorts, agent: Agent) -> tuple[Part, ...]:
    """Return the watchdog, if the service manager has one; raises WatchdogError for a time that cannot be kept."""
    allowed = read_watchdog(os.environ, pid=os.getpid())
    if allowed is None:
        return ()

    async def check_loop() -> str | None:
        return agent.loop.health_error()

    watchdog = Watchdog(
        manager=find_service_manager(os.environ),
        allowed=check_allowed(allowed),
        checks={"syncloop": check_loop},
        clock=base.clock,
        randomness=base.randomness,
    )
    return (watchdog,)
