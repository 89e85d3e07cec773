"""The subordinate user and group ids that the machine's administrator granted a user (`/etc/subuid`, `/etc/subgid`)."""

import pwd
import shutil
from datetime import timedelta
from typing import Final, NamedTuple

from klet.host.processes import run_process

GETSUBIDS: Final = "getsubids"
PATIENCE: Final = timedelta(seconds=30)


class GrantedIds(NamedTuple):
    """What `getsubids` prints of one user."""

    users: str
    groups: str


async def read_granted_ids(user: str) -> GrantedIds | None:
    """Return None if the machine does not have that user, or no tool that lists them. Raises HostError."""
    if not _has_user(user) or shutil.which(GETSUBIDS) is None:
        return None
    users = (await run_process([GETSUBIDS, user], timeout=PATIENCE)).check()
    groups = (await run_process([GETSUBIDS, "-g", user], timeout=PATIENCE)).check()
    return GrantedIds(users.stdout.decode(), groups.stdout.decode())


def _has_user(name: str) -> bool:
    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True
