"""What can go wrong on the machine.

HostError
├── FileError              a file that cannot be read, written or removed
│   ├── FileMissing        … because it is not there
│   └── MountInTree        a removal met a mount, which it never crosses
├── MalformedFile          a kernel file that does not look as documented
├── MountError             a mount or unmount that the kernel refused
├── ProcessError           a child process
│   ├── ProcessFailed      … could not start or ended with another code than 0
│   └── ProcessTimeout     … was killed at its deadline
└── CgroupError            a control group that cannot be made, written, read or removed
    ├── CgroupNameError    … whose name breaks a rule
    ├── CgroupMissing      … that is not there, or not in every controller
    ├── CgroupBusy         … that still holds processes or children
    └── SystemdError       … because systemd said no or nothing (SystemdTimeout, SystemdUnavailable)
"""

import os
from pathlib import Path

from klet.errors import KletError


class HostError(KletError):
    """Base of the errors of the host port."""


class FileError(HostError):
    """A file operation that failed, with the path and the operating system's error number."""

    def __init__(self, message: str, *, path: Path, errno: int | None = None) -> None:
        super().__init__(message)
        self.path = path
        self.errno = errno


class FileMissing(FileError):
    """The file is not there."""


class MountInTree(FileError):
    """A tree to be removed holds a mount."""


class MalformedFile(HostError):
    """A kernel file that does not look as documented."""


class MountError(HostError):
    """A mount system call that failed."""

    def __init__(self, message: str, *, errno: int) -> None:
        super().__init__(message)
        self.errno = errno


class ProcessError(HostError):
    """Base of the errors of child processes."""


class ProcessFailed(ProcessError):
    """The child could not be started or ended with another code than 0."""

    def __init__(self, message: str, *, returncode: int | None, stdout: bytes = b"", stderr: bytes = b"") -> None:
        super().__init__(message)
        self.returncode = returncode
        self.stdout = stdout
        self.stderr = stderr


class ProcessTimeout(ProcessError):
    """The child was killed at its deadline."""


class CgroupError(HostError):
    """Base of the errors of control groups."""


class CgroupNameError(CgroupError):
    """A cgroup name that breaks a rule."""


class CgroupMissing(CgroupError):
    """The cgroup is not there, or not in every controller that is needed."""


class CgroupBusy(CgroupError):
    """The cgroup still holds processes or children."""


class SystemdError(CgroupError):
    """systemd refused a unit."""

    def __init__(self, message: str, *, name: str = "") -> None:
        super().__init__(message)
        self.name = name
        """The D-Bus error name, empty when systemd answered with a failed job."""


class SystemdTimeout(SystemdError):
    """systemd did not finish a job in time."""


class SystemdUnavailable(SystemdError):
    """The bus or systemd on it cannot be reached."""


def file_error(action: str, path: Path, error: OSError) -> FileError:
    """Translate an OSError: `cannot <action> <path>: <reason>`."""
    kind = FileMissing if isinstance(error, FileNotFoundError) else FileError
    reason = os.strerror(error.errno) if error.errno is not None else str(error)
    return kind(f"cannot {action} {path}: {reason}", path=path, errno=error.errno)
