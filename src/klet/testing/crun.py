"""crun for private containerds, also on machines where it refuses to run as it is."""

import shutil
from pathlib import Path

UNIFIED = Path("/sys/fs/cgroup/unified")

# The mount disappears for crun alone: in a mount namespace of its own, from which nothing comes back.
_HIDING = """\
#!/bin/sh
exec unshare --mount --propagation slave sh -c 'umount {unified} && exec "$0" "$@"' {crun} "$@"
"""


def find_crun(directory: Path, path: str, *, unified: Path = UNIFIED) -> str | None:
    """Return the program to give to containerd; None if the machine has no crun.

    crun refuses a machine where version 2 of cgroups has a controller beside version 1. There it gets a wrapper, in
    the directory, that hides version 2 from it.
    """
    crun = shutil.which("crun", path=path)
    if crun is None or not has_mixed_controllers(unified):
        return crun
    wrapper = directory / "crun"
    wrapper.write_text(_HIDING.format(unified=unified, crun=crun))
    wrapper.chmod(0o755)
    return str(wrapper)


def has_mixed_controllers(unified: Path = UNIFIED) -> bool:
    controllers = unified / "cgroup.controllers"
    return controllers.exists() and bool(controllers.read_text().strip())
