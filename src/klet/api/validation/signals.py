"""Stop signals a container may ask for, by operating system."""

from typing import Final

from klet.api.validation.errors import FieldErrors, forbidden, not_supported
from klet.api.validation.fieldpath import FieldPath

_NAMED: Final = (
    *("ABRT", "ALRM", "BUS", "CHLD", "CLD", "CONT", "FPE", "HUP", "ILL", "INT", "IO", "IOT", "KILL", "PIPE", "POLL"),
    *("PROF", "PWR", "QUIT", "SEGV", "STKFLT", "STOP", "SYS", "TERM", "TRAP", "TSTP", "TTIN", "TTOU", "URG"),
    *("USR1", "USR2", "VTALRM", "WINCH", "XCPU", "XFSZ"),
)
_REAL_TIME: Final = (
    "RTMAX",
    *(f"RTMAX-{number}" for number in range(1, 15)),
    "RTMIN",
    *(f"RTMIN+{number}" for number in range(1, 16)),
)
LINUX_SIGNALS: Final = tuple(sorted(f"SIG{name}" for name in (*_NAMED, *_REAL_TIME)))
WINDOWS_SIGNALS: Final = ("SIGKILL", "SIGTERM")


def validate_stop_signal(signal: str, os_name: str | None, path: FieldPath) -> FieldErrors:
    if os_name is None:
        yield forbidden(path, "may not be set for containers with empty `spec.os.name`")
        return
    supported = WINDOWS_SIGNALS if os_name == "windows" else LINUX_SIGNALS
    if signal not in supported:
        yield not_supported(path, signal, supported)
