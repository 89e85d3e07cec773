"""The whole machine: a Debian that boots like a user's, reached by SSH over loopback.

Its disk is a copy of the built one, so that each machine begins clean and keeps what is written through reboots. It
has no network but the port of its SSH server. Everything here blocks.
"""

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from klet.testing.control_plane.programs import program_directory
from klet.testing.vm.debian import HOST_NAME, REPOSITORY, DebianDisk, build_disk, install_klet
from klet.testing.vm.qemu import (
    QEMU,
    MachineFailed,
    base_command,
    check_programs,
    choose_accelerator,
    describe_missing,
    running,
    share_arguments,
    share_directory,
)

MEMORY: Final = 3072
CPUS: Final = 2
BOOT_LIMIT: Final = 600.0
"""Seconds until there is a shell, on a busy host that emulates the processor."""
COMMAND_LIMIT: Final = 600.0
_NEEDED: Final = {QEMU: "qemu-system-x86", "ssh": "openssh-client"}
_PREFIX: Final = "klet-machine-"
_KERNEL_ARGUMENTS: Final = (
    "root=LABEL=root rw console=ttyS0 quiet systemd.show_status=0 mitigations=off no_timer_check tsc=reliable "
    "random.trust_cpu=on"
)


class CommandFailed(MachineFailed):
    """A command in the machine ended with another code than 0."""


class CommandResult(Struct, frozen=True):
    code: int
    output: str
    errors: str


class DebianMachine:
    """A machine that is running, or that can be started again."""

    def __init__(self, *, disk: DebianDisk, klet_disk: Path, directory: Path, memory: int, cpus: int) -> None:
        self._disk = disk
        self._klet_disk = klet_disk
        self._directory = directory
        self._memory = memory
        self._cpus = cpus
        self._port = 0
        self._running: ExitStack | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self.accelerator = choose_accelerator()

    @property
    def console(self) -> str:
        """What the kernel and systemd have written on the serial port, of all boots."""
        path = self._directory / "console"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self) -> float:
        """Switch the machine on and wait for its shell; return the seconds that took. Raises MachineFailed."""
        started = time.monotonic()
        drive = self._directory / "disk.img"
        if not drive.exists():
            # Sparse, and without a copy where the file system can share blocks.
            command = ["cp", "--sparse=always", "--reflink=auto", str(self._disk.image), str(drive)]
            subprocess.run(command, check=True)
        with ExitStack() as stack:
            arguments = []
            for tag, directory in self._shares().items():
                path = self._directory / f"{tag}.socket"
                stack.enter_context(share_directory(directory, path))
                arguments += share_arguments(tag, path)
            self._port = _free_port()
            log = stack.enter_context((self._directory / "qemu.log").open("wb"))
            self._process = stack.enter_context(running([*self._qemu(drive), *arguments], stdout=log, stderr=log))
            stack.callback(self._disconnect)
            self._running = stack.pop_all()
        self._wait_for_shell(previous="", deadline=started + BOOT_LIMIT)
        return time.monotonic() - started

    def run(
        self, command: str, *, timeout: float = COMMAND_LIMIT, check: bool = True, data: bytes | None = None
    ) -> CommandResult:
        """Run a shell command in the machine; raises CommandFailed unless told not to, MachineFailed if it hangs."""
        try:
            done = subprocess.run(
                self._ssh(command), input=data or b"", capture_output=True, timeout=timeout, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise MachineFailed(f"{command[:200]!r} did not end within {timeout:g} s") from error
        result = CommandResult(
            done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
        )
        if check and result.code:
            said = f"{result.output[-2000:]}{result.errors[-4000:]}"
            raise CommandFailed(f"{command[:400]!r} ended with code {result.code}:\n{said}")
        return result

    def output(self, command: str, *, timeout: float = COMMAND_LIMIT) -> str:
        return self.run(command, timeout=timeout).output.strip()

    def stream(self, command: str, *, terminal: bool = False) -> int:
        """Run a command with this process's own standard streams; return its exit code."""
        return subprocess.run([*self._ssh(command, *(["-t"] if terminal else []))], check=False).returncode

    def write(self, path: str, text: str, *, mode: int = 0o644) -> None:
        """Put a file in place in one step, and its directory."""
        target = shlex.quote(path)
        parent = shlex.quote(os.path.dirname(path))  # noqa: PTH120  a path of the machine, not of this one
        script = f"mkdir -p {parent} && cat >{target}.new && chmod {mode:o} {target}.new && mv {target}.new {target}"
        self.run(script, data=text.encode())

    def copy_in(self, local: Path, remote: str) -> None:
        """Copy a file or a directory into a directory of the machine."""
        packed = subprocess.run(
            ["tar", "-C", str(local.parent), "-c", local.name], check=True, capture_output=True
        ).stdout
        self.run(f"mkdir -p {shlex.quote(remote)} && tar -C {shlex.quote(remote)} -x", data=packed)

    def copy_out(self, remote: str, local: Path) -> None:
        """Copy a file or a directory of the machine into a directory here."""
        local.mkdir(parents=True, exist_ok=True)
        place, _, name = remote.rstrip("/").rpartition("/")
        with (local / ".copy.tar").open("w+b") as packed:
            command = f"tar -C {shlex.quote(place or '/')} -c {shlex.quote(name)}"
            subprocess.run(self._ssh(command), stdout=packed, check=True, timeout=COMMAND_LIMIT)
        subprocess.run(["tar", "-C", str(local), "--no-same-owner", "-xf", str(local / ".copy.tar")], check=True)
        (local / ".copy.tar").unlink()

    @contextmanager
    def forwarding(self, *, port: int, to: int, into_machine: bool) -> Iterator[None]:
        """Let a port of one side's loopback lead to a port of the other's, while the block runs."""
        what = ["-L" if into_machine else "-R", f"127.0.0.1:{port}:127.0.0.1:{to}"]
        self._control("forward", *what)
        try:
            yield
        finally:
            with suppress(MachineFailed):  # a reboot has ended the connection already
                self._control("cancel", *what)

    @property
    def boot_id(self) -> str:
        return self.output("cat /proc/sys/kernel/random/boot_id")

    def reboot(self) -> float:
        """Reboot as an administrator would; return the seconds until there is a shell again."""
        return self._boot_again(lambda: self.run("systemctl reboot", check=False))

    def reset(self) -> float:
        """Press the reset button: nothing is shut down or written back."""
        return self._boot_again(lambda: self._monitor("system_reset"))

    def cut_power(self) -> None:
        """Switch off at once: what was not written to the disk is lost. `start` switches on again."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
        self.close()

    def shut_down(self, *, timeout: float = COMMAND_LIMIT) -> None:
        """Shut down in order. `start` switches on again."""
        if self._process is not None:
            self.run("systemctl poweroff", check=False)
            try:
                self._process.wait(timeout)
            except subprocess.TimeoutExpired as error:
                raise MachineFailed(f"the machine was not down within {timeout:g} s") from error
        self.close()

    def close(self) -> None:
        """End its processes, if it runs."""
        if self._running is not None:
            self._running.close()
        self._running = self._process = None

    def _boot_again(self, action: Callable[[], object]) -> float:
        previous = self.boot_id
        started = time.monotonic()
        action()
        self._disconnect()
        self._wait_for_shell(previous=previous, deadline=started + BOOT_LIMIT)
        return time.monotonic() - started

    def _wait_for_shell(self, *, previous: str, deadline: float) -> None:
        """Wait until a shell answers in a boot that is not the previous one."""
        boot_id = "cat /proc/sys/kernel/random/boot_id"
        while time.monotonic() < deadline:
            if self._process is None or self._process.poll() is not None:
                break
            with suppress(MachineFailed):
                result = self.run(boot_id, timeout=30, check=False)
                if result.code == 0 and result.output.strip() != previous:
                    return
                self._disconnect()
            time.sleep(0.2)
        log = (self._directory / "qemu.log").read_text(errors="replace")
        state = "is running" if self._process is not None and self._process.poll() is None else "has ended"
        raise MachineFailed(f"no shell; {QEMU} {state}\n{log[-1000:]}\n{self.console[-2000:]}")

    def _shares(self) -> dict[str, Path]:
        programs = program_directory()
        return {"tree": REPOSITORY, **({"programs": programs} if programs.is_dir() else {})}

    def _qemu(self, drive: Path) -> list[str]:
        forward = f"hostfwd=tcp:127.0.0.1:{self._port}-:22"
        return [
            *base_command(accelerator=self.accelerator, cpus=self._cpus, memory=self._memory),
            *("-kernel", str(self._disk.kernel), "-initrd", str(self._disk.initrd), "-append", _KERNEL_ARGUMENTS),
            # Flushes need not reach this machine's disk: what QEMU was given survives its own end.
            *("-drive", f"file={drive},format=raw,if=virtio,cache=unsafe,discard=unmap"),
            *("-drive", f"file={self._klet_disk},format=raw,if=virtio,readonly=on"),
            *("-netdev", f"user,id=network,restrict=on,{forward}", "-device", "virtio-net-pci,netdev=network"),
            *("-device", "virtio-rng-pci"),
            *(
                "-chardev",
                f"file,id=console,path={self._directory / 'console'},append=on",
                "-serial",
                "chardev:console",
            ),
            *("-qmp", f"unix:{self._directory / 'monitor'},server=on,wait=off"),
        ]

    def _ssh(self, command: str, *options: str) -> list[str]:
        return [*self._ssh_client(), *options, HOST_NAME, command]

    def _ssh_client(self) -> list[str]:
        settings = {
            "HostName": "127.0.0.1",
            "HostKeyAlias": HOST_NAME,
            "Port": self._port,
            "User": "root",
            "IdentityFile": self._disk.key,
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": self._disk.known_hosts,
            "StrictHostKeyChecking": "yes",
            "BatchMode": "yes",
            "ConnectTimeout": 20,
            # A busy host may let the whole machine stand still for a while.
            "ServerAliveInterval": 15,
            "ServerAliveCountMax": 8,
            "LogLevel": "ERROR",
            # One connection for all commands: to encrypt and to log in takes a second where the processor is emulated.
            "ControlMaster": "auto",
            "ControlPersist": "yes",
            "ControlPath": self._directory / "ssh",
        }
        return ["ssh", "-F", "none", *(word for name, value in settings.items() for word in ("-o", f"{name}={value}"))]

    def _control(self, action: str, *options: str) -> None:
        command = [*self._ssh_client(), "-O", action, *options, HOST_NAME]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
        if done.returncode:
            raise MachineFailed(f"ssh -O {action} failed: {done.stderr.strip()}")

    def _disconnect(self) -> None:
        with suppress(MachineFailed):
            self._control("exit")
        (self._directory / "ssh").unlink(missing_ok=True)

    def _monitor(self, command: str) -> None:
        """Give QEMU's monitor one command (QMP)."""
        with socket.socket(socket.AF_UNIX) as monitor:
            monitor.settimeout(30)
            monitor.connect(str(self._directory / "monitor"))
            with monitor.makefile("rwb") as lines:
                lines.readline()
                for name in ("qmp_capabilities", command):
                    lines.write(json.dumps({"execute": name}).encode() + b"\n")
                    lines.flush()
                    while "return" not in (answer := json.loads(lines.readline())):
                        if "error" in answer:
                            raise MachineFailed(f"{QEMU} refused {name}: {answer['error']}")


def why_impossible() -> str:
    """Return what this machine lacks to run a whole one; empty if nothing."""
    return describe_missing(_NEEDED)


@contextmanager
def whole_machine(say: Callable[[str], None], *, memory: int = MEMORY, cpus: int = CPUS) -> Iterator[DebianMachine]:
    """Yield a machine that has booted from a clean disk, with the klet of this checkout; nothing of it stays behind."""
    check_programs(_NEEDED)
    remove_abandoned_machines()
    disk = build_disk(say)
    klet_disk = install_klet(disk, say)
    with tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as directory:
        Path(directory, "owner").write_text(str(os.getpid()))
        machine = DebianMachine(disk=disk, klet_disk=klet_disk, directory=Path(directory), memory=memory, cpus=cpus)
        with _closing(machine):
            took = machine.start()
            say(f"a shell {took:.0f} s after power on ({machine.accelerator})")
            yield machine


def remove_abandoned_machines() -> None:
    """Remove the files of machines whose process was killed; QEMU ended with it."""
    for directory in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        owner = directory / "owner"
        if owner.exists() and not Path("/proc", owner.read_text().strip() or "none").exists():
            shutil.rmtree(directory, ignore_errors=True)


def _closing(machine: DebianMachine) -> AbstractContextManager[object]:
    stack = ExitStack()
    stack.callback(machine.close)
    return stack


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
