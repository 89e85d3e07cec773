"""A systemctl and a journalctl for tests, as programs: units are really started, and notify as with systemd.

Run as `python -m klet.testing.fake_systemctl DIRECTORY systemctl|journalctl ARGUMENTS…`; `FakeSystemctl` writes the two
programs for a PATH. Below DIRECTORY: `root` is the machine's `/`, `calls` what was called, `journal/UNIT` what units
wrote, `notified/UNIT` what they sent to NOTIFY_SOCKET. As with systemd a changed unit counts after daemon-reload, main
processes alone are stopped, and a unit is started after those that it wants. Nothing is started again by itself.
"""

import itertools
import json
import os
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

UNITS: Final = "etc/systemd/system"
WANTED: Final = f"{UNITS}/multi-user.target.wants"
_START_SECONDS: Final = 120
_STOP_SECONDS: Final = 20
_LONGEST_MESSAGE: Final = 4096
_MODULE: Final = "klet.testing.fake_systemctl"
_KEEP: Final = "keep"
_NOT_LOADED: Final = 5


class FakeSystemctl:
    """What tests see of the service manager."""

    def __init__(self, directory: Path) -> None:
        self.root = directory / "root"
        self.programs = directory / "bin"
        self._directory = directory
        for path in (self.root / "run/systemd/system", self.root / UNITS, self.programs):
            path.mkdir(parents=True)
        for name in ("systemctl", "journalctl"):
            command = shlex.join([sys.executable, "-P", "-m", _MODULE, str(directory), name])
            program = self.programs / name
            program.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
            program.chmod(0o755)

    @property
    def units(self) -> Path:
        return self.root / UNITS

    def calls(self) -> list[str]:
        """Return what systemctl was asked to do since the last time, without questions."""
        path = self._directory / "calls"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return [line for line in lines if not line.startswith("show")]

    def state(self, unit: str) -> Mapping[str, str]:
        return _read_state(self._directory, unit)

    def main_pid(self, unit: str) -> int:
        return int(self.state(unit).get("MainPID", "0"))

    def notified(self, unit: str) -> list[str]:
        path = self._directory / "notified" / unit
        return path.read_text().splitlines() if path.exists() else []

    def journal(self, unit: str) -> str:
        path = self._directory / "journal" / unit
        return path.read_text(errors="replace") if path.exists() else ""

    def enabled(self) -> list[str]:
        wanted = self.root / WANTED
        return sorted(path.name for path in wanted.iterdir()) if wanted.is_dir() else []

    def reboot(self) -> None:
        """Forget all processes, which the caller has ended, and load the units as after a boot."""
        for name in ("states", "loaded"):
            shutil.rmtree(self._directory / name, ignore_errors=True)

    def stop_all(self) -> None:
        states = self._directory / "states"
        for path in states.iterdir() if states.is_dir() else ():
            _stop(self._directory, path.name)


class _Unit:
    """The settings of one unit that are acted on."""

    def __init__(self, text: str) -> None:
        pairs = [line.partition("=")[::2] for line in text.splitlines() if "=" in line and not line.startswith("#")]
        self._pairs = [(key.strip(), value.strip()) for key, value in pairs]

    def get(self, key: str) -> str:
        return next(reversed(self.all(key)), "")

    def all(self, key: str) -> list[str]:
        """Return the values; an empty one forgets those before it."""
        values: list[str] = []
        for name, value in self._pairs:
            if name == key:
                values = [*values, value] if value else []
        return values

    def environment(self, root: Path) -> dict[str, str]:
        settings = [word for value in self.all("Environment") for word in shlex.split(value)]
        for place in self.all("EnvironmentFile"):
            file = root / place.removeprefix("-").lstrip("/")
            settings += file.read_text().split("\n") if file.exists() else []
        pairs = (setting.partition("=")[::2] for setting in settings if "=" in setting)
        return {key: value.strip('"').replace("%%", "%") for key, value in pairs}


def main(arguments: Sequence[str]) -> int:
    directory, program, *words = arguments
    if program == "journalctl":
        return _journalctl(Path(directory), words)
    if program == _KEEP:
        return _keep(Path(directory), words[0], int(words[1]))
    verb, *units = [word for word in words if not word.startswith("-")]
    with open(Path(directory) / "calls", "a") as calls:
        calls.write(" ".join([verb, *units]) + "\n")
    return _systemctl(Path(directory), verb, units)


def _systemctl(directory: Path, verb: str, units: Sequence[str]) -> int:
    match verb:
        case "show":
            sys.stdout.write("\n".join(_show(directory, unit) for unit in units))
            return 0
        case "daemon-reload":
            shutil.rmtree(directory / "loaded", ignore_errors=True)
            for path in (directory / "root" / UNITS).glob("*.service"):
                _load(directory, path.name)
            return 0
        case "enable" | "disable":
            return max(_enable(directory, unit, is_wanted=verb == "enable") for unit in units)
        case "start" | "stop" | "restart" | "reset-failed":
            act = {"start": _start, "stop": _stop, "restart": _restart, "reset-failed": _reset}[verb]
            return max(act(directory, unit) for unit in units)
        case _:
            return _fail(f"Unknown command verb {verb}.")


def _show(directory: Path, unit: str) -> str:
    is_wanted = (directory / "root" / WANTED / unit).is_symlink()
    has_file = _file(directory, unit) is not None
    properties = {
        "Id": unit,
        "LoadState": "loaded" if _load(directory, unit) is not None else "not-found",
        "ActiveState": "inactive",
        "SubState": "dead",
        "UnitFileState": ("enabled" if is_wanted else "disabled") if has_file else "",
        "MainPID": "0",
        "Result": "success",
        **_read_state(directory, unit),
    }
    return "".join(f"{key}={value}\n" for key, value in properties.items())


def _enable(directory: Path, unit: str, *, is_wanted: bool) -> int:
    link = directory / "root" / WANTED / unit
    file = _file(directory, unit)
    if file is None:
        return _fail(f"Failed: Unit file {unit} does not exist.")
    link.unlink(missing_ok=True)
    if is_wanted:
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(file)
    return 0


def _start(directory: Path, unit: str) -> int:
    text = _load(directory, unit)
    if text is None:
        return _fail(f"Failed to start {unit}: Unit {unit} not found.", code=_NOT_LOADED)
    if _read_state(directory, unit).get("ActiveState") == "active":
        return 0
    settings = _Unit(text)
    for wanted in (word for value in settings.all("Wants") for word in value.split() if word.endswith(".service")):
        _start(directory, wanted)
    for command in settings.all("ExecStartPre"):
        if _run(directory, unit, settings, command):
            return _failed(directory, unit, "control process")
    reading, writing = os.pipe()
    keeper = [sys.executable, "-P", "-m", _MODULE, str(directory), _KEEP, unit, str(writing)]
    output = _output(directory, unit)
    subprocess.Popen(
        keeper, pass_fds=[writing], start_new_session=True, stdin=subprocess.DEVNULL, stdout=output, stderr=output
    )
    os.close(writing)
    is_told, _, _ = select.select([reading], [], [], _START_SECONDS)
    said = os.read(reading, _LONGEST_MESSAGE) if is_told else b"timeout"
    os.close(reading)
    if said != b"ready":
        _stop(directory, unit)
        return _failed(directory, unit, f"start: {said.decode() or 'main process exited'}")
    for command in settings.all("ExecStartPost"):
        if _run(directory, unit, settings, command):
            _stop(directory, unit)
            return _failed(directory, unit, "control process")
    return 0


def _keep(directory: Path, unit: str, channel: int) -> int:
    """Run the main process of a unit: one such process for each unit stays until it has ended."""
    settings = _Unit(_load(directory, unit) or "")
    address = directory / f"notify-{unit.removesuffix('.service')}"
    address.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notifications:
        notifications.bind(str(address))
        is_notifying = settings.get("Type") == "notify"
        environment = {"NOTIFY_SOCKET": str(address)} if is_notifying else {}
        if watchdog := settings.get("WatchdogSec"):
            environment["WATCHDOG_USEC"] = str(int(watchdog.removesuffix("s")) * 1_000_000)
        # The shell is replaced by the program, and so knows its process.
        shell = ["/bin/sh", "-c", 'export WATCHDOG_PID=$$; exec "$@"', "sh"]
        main_process = subprocess.Popen(
            [*shell, *_words(directory, settings, settings.get("ExecStart"))],
            env={**_environment(directory, settings), **environment},
            stdin=subprocess.DEVNULL,
            stdout=_output(directory, unit),
            stderr=subprocess.STDOUT,
        )
        _write_state(directory, unit, ActiveState="activating", MainPID=main_process.pid, Keeper=os.getpid())
        if not is_notifying:
            _tell_ready(directory, unit, main_process.pid, channel)
        ended = os.pidfd_open(main_process.pid)
        while True:
            readable, _, _ = select.select([notifications.fileno(), ended], [], [])
            if notifications.fileno() in readable:
                message = notifications.recv(_LONGEST_MESSAGE).decode()
                (directory / "notified").mkdir(exist_ok=True)
                with open(directory / "notified" / unit, "a") as log:
                    log.write(message + "\n")
                if "READY=1" in message.split("\n"):
                    _tell_ready(directory, unit, main_process.pid, channel)
                continue
            code = main_process.wait()
            os.close(ended)
            break
    address.unlink(missing_ok=True)
    _write_state(directory, unit, ActiveState="failed" if code > 0 else "inactive", MainPID=0, Result=f"exit {code}")
    return 0


def _tell_ready(directory: Path, unit: str, pid: int, channel: int) -> None:
    _write_state(directory, unit, ActiveState="active", SubState="running", MainPID=pid, Keeper=os.getpid())
    os.write(channel, b"ready")


def _stop(directory: Path, unit: str) -> int:
    if _load(directory, unit) is None and not _read_state(directory, unit):
        return _fail(f"Failed to stop {unit}: Unit {unit} not loaded.", code=_NOT_LOADED)
    state = _read_state(directory, unit)
    pid, keeper = int(state.get("MainPID", "0")), int(state.get("Keeper", "0"))
    if pid and keeper:
        try:
            ended = os.pidfd_open(keeper)
        except ProcessLookupError:
            ended = -1
        if ended >= 0:
            os.kill(pid, signal.SIGTERM)
            if not select.select([ended], [], [], _STOP_SECONDS)[0]:
                os.kill(pid, signal.SIGKILL)
                select.select([ended], [], [], _STOP_SECONDS)
            os.close(ended)
    _write_state(directory, unit, ActiveState="inactive", MainPID=0)
    return 0


def _restart(directory: Path, unit: str) -> int:
    _stop(directory, unit)
    return _start(directory, unit)


def _reset(directory: Path, unit: str) -> int:
    if not _read_state(directory, unit):
        return _fail(f"Failed to reset failed state of unit {unit}: Unit {unit} not loaded.")
    (directory / "states" / unit).unlink()
    return 0


def _failed(directory: Path, unit: str, why: str) -> int:
    _write_state(directory, unit, ActiveState="failed", MainPID=0, Result="exit-code")
    return _fail(f"Job for {unit} failed because the {why} failed.")


def _run(directory: Path, unit: str, settings: _Unit, command: str) -> int:
    words = _words(directory, settings, command)
    environment = _environment(directory, settings)
    output = _output(directory, unit)
    return subprocess.run(words, env=environment, check=False, stdout=output, stderr=output).returncode


def _words(directory: Path, settings: _Unit, command: str) -> list[str]:
    words: list[str] = []
    environment = settings.environment(directory / "root")
    for word in shlex.split(command):
        if word.startswith("$") and not word.startswith("$$"):
            words += environment.get(word[1:], "").split()
        else:
            words.append(word.replace("$$", "$").replace("%%", "%"))
    inside = directory / "root" / words[0].lstrip("/")
    return [str(inside) if inside.exists() else words[0], *words[1:]]


def _environment(directory: Path, settings: _Unit) -> dict[str, str]:
    # Of the caller only what the tests of the machine need to find the same one.
    kept = {key: value for key, value in os.environ.items() if key.startswith("KLET_MACHINE")}
    own = settings.environment(directory / "root")
    return {"PATH": os.environ["PATH"], **kept, **own}


def _output(directory: Path, unit: str) -> int:
    (directory / "journal").mkdir(exist_ok=True)
    return os.open(directory / "journal" / unit, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)


def _load(directory: Path, unit: str) -> str | None:
    """Return the text of a unit as of the last daemon-reload, or as it is if it was not loaded yet."""
    loaded = directory / "loaded" / unit
    if not loaded.exists():
        file = _file(directory, unit)
        if file is None:
            return None
        drop_ins = sorted(file.parent.glob(f"{unit}.d/*.conf"))
        loaded.parent.mkdir(exist_ok=True)
        loaded.write_text("\n".join(path.read_text() for path in (file, *drop_ins)))
    return loaded.read_text()


def _file(directory: Path, unit: str) -> Path | None:
    places = (UNITS, "usr/lib/systemd/system")
    return next((path for place in places if (path := directory / "root" / place / unit).exists()), None)


def _read_state(directory: Path, unit: str) -> dict[str, str]:
    path = directory / "states" / unit
    return msgspec.json.decode(path.read_bytes(), type=dict[str, str]) if path.exists() else {}


def _write_state(directory: Path, unit: str, **properties: object) -> None:
    path = directory / "states" / unit
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_name(f".{unit}.{os.getpid()}")
    temporary.write_text(json.dumps({key: str(value) for key, value in properties.items()}))
    temporary.replace(path)


def _journalctl(directory: Path, words: Sequence[str]) -> int:
    options = dict(itertools.pairwise(words))
    path = directory / "journal" / options["--unit"]
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    sys.stdout.write("".join(f"{line}\n" for line in lines[-int(options["--lines"]) :]))
    return 0


def _fail(text: str, *, code: int = 1) -> int:
    sys.stderr.write(f"{text}\n")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
