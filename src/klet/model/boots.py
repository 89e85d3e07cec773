"""What is known of a reboot of the machine, for the parts that act because of it."""

from datetime import datetime

from msgspec import Struct

from klet.model.causes import CauseId
from klet.model.pods import PodUID


class Reboot(Struct, frozen=True, kw_only=True):
    """The newest reboot that the agent has recorded."""

    cause: CauseId
    """The record of it."""
    noticed_at: datetime
    """When the first run of the agent after it began: what the runtime made before is from before the reboot."""
    before: frozenset[PodUID] = frozenset()
    """The pods that were known before it. Only the first run after the reboot has them."""
