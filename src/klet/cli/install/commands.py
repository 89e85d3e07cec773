"""`klet install` and `klet uninstall`: checks what they need, and prints what they did."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Final

from msgspec import Struct

from klet.aio.clock import Clock
from klet.api.klet_v1 import InstallReport, encode
from klet.cli.install.kubelet_form import KubeletForm, KubeletInstallOptions
from klet.cli.install.machine_files import MachineFiles
from klet.cli.install.node_form import NodeForm, NodeInstallOptions
from klet.cli.install.plan import WantedFile
from klet.cli.install.program import choose_program, observe_program, warn_of_program
from klet.cli.install.systemd import Systemd
from klet.cli.install.units import KUBELET_UNIT, node_units
from klet.cli.node.node import LocalNode, NodeError, find_node
from klet.cli.progress import CommandProgress
from klet.model.foreign_text import as_terminal_text

_WITHOUT_SYSTEMD: Final = {
    "install": (
        "nothing here would start a unit at boot; `klet up --detach` runs the node until the machine stops, "
        "and any other service manager can call it"
    ),
    "uninstall": "no unit runs here that could be stopped; `klet down` stops a node of `klet up`",
}
_FILE_VERBS: Final = {
    "written": "write",
    "moved": "keep the kubelet that is there as",
    "removed": "remove",
    "restored": "put the original back as",
    "kept": "keep what was changed by hand,",
}
_UNIT_VERBS: Final = {"started": "start", "restarted": "restart", "stopped": "stop"}


class InstallOptions(Struct, frozen=True, kw_only=True):
    """What the user asked for."""

    state: Path
    is_kubelet: bool = False
    should_start: bool = True
    may_install: bool = True
    may_replace: bool = False
    is_forced: bool = False
    is_dry_run: bool = False
    as_json: bool = False


class UninstallOptions(Struct, frozen=True, kw_only=True):
    """What the user asked for."""

    state: Path
    is_kubelet: bool = False
    should_purge: bool = False
    is_forced: bool = False
    is_dry_run: bool = False
    as_json: bool = False


class InstallCommands:
    """The two commands, on one machine."""

    def __init__(self, *, files: MachineFiles, systemd: Systemd, progress: CommandProgress, clock: Clock) -> None:
        self._files = files
        self._systemd = systemd
        self._progress = progress
        self._clock = clock

    def install(self, options: InstallOptions) -> int:
        node = find_node(options.state)
        self._require("install", is_dry_run=options.is_dry_run)
        program = choose_program(observe_program(), is_program=_is_program)
        if warning := warn_of_program(program):
            self._progress.warn(warning)
        show = _skip_file if options.as_json else _show_file
        if options.is_kubelet:
            kubelet = KubeletInstallOptions(
                should_start=options.should_start,
                may_replace=options.may_replace,
                is_forced=options.is_forced,
                is_dry_run=options.is_dry_run,
            )
            report = asyncio.run(self._kubelet(program).install(kubelet, show=show))
        else:
            wanted = NodeInstallOptions(
                should_start=options.should_start,
                may_install=options.may_install,
                is_forced=options.is_forced,
                is_dry_run=options.is_dry_run,
            )
            report = asyncio.run(self._node(node, program).install(wanted, show=show))
        return self._conclude(report, as_json=options.as_json, lines=_after_install(report, node, options))

    def uninstall(self, options: UninstallOptions) -> int:
        node = find_node(options.state)
        self._require("uninstall", is_dry_run=options.is_dry_run)
        program = choose_program(observe_program(), is_program=_is_program)
        if options.is_kubelet:
            report = asyncio.run(
                self._kubelet(program).uninstall(is_forced=options.is_forced, is_dry_run=options.is_dry_run)
            )
        else:
            report = asyncio.run(
                self._node(node, program).uninstall(
                    should_purge=options.should_purge, is_forced=options.is_forced, is_dry_run=options.is_dry_run
                )
            )
        return self._conclude(report, as_json=options.as_json, lines=_after_uninstall(report, options))

    def _require(self, command: str, *, is_dry_run: bool) -> None:
        if is_dry_run:
            if why := self._systemd.why_missing():
                self._progress.warn(f"{why}: without --dry-run this command would refuse")
            return
        if os.geteuid() != 0:
            raise NodeError(f"`klet {command}` needs root: it changes units of systemd; use sudo")
        self._systemd.require(_WITHOUT_SYSTEMD[command])

    def _node(self, node: LocalNode, program: tuple[str, ...]) -> NodeForm:
        return NodeForm(
            node=node,
            program=program,
            files=self._files,
            systemd=self._systemd,
            progress=self._progress,
            clock=self._clock,
        )

    def _kubelet(self, program: tuple[str, ...]) -> KubeletForm:
        return KubeletForm(
            program=program, files=self._files, systemd=self._systemd, progress=self._progress, clock=self._clock
        )

    def _conclude(self, report: InstallReport, *, as_json: bool, lines: list[str]) -> int:
        for warning in report.warnings:
            self._progress.warn(warning)
        for error in report.errors:
            self._progress.error(error)
        for line in lines:
            self._progress.show(line)
        if as_json:
            sys.stdout.write(encode(report).decode() + "\n")
            sys.stdout.flush()
        return 1 if report.errors else 0


def _after_install(report: InstallReport, node: LocalNode, options: InstallOptions) -> list[str]:
    """Return what the user reads last."""
    if report.dry_run:
        return [_dry_run_line(report, is_install=True)]
    unit = KUBELET_UNIT if options.is_kubelet else node_units(node.names).agent
    logs = f"`systemctl status {unit}`, `journalctl -u {unit}`"
    if report.errors:
        return [f"The units are installed, and systemd goes on starting them. Look at {logs}."]
    if report.ready:
        return [f"{'Installed' if report.changed else 'Nothing to do: installed'} and running. Look at it with {logs}."]
    if options.is_kubelet and options.should_start:
        return ["Installed. It starts when the node joins a cluster: `kubeadm join …`."]
    return [f"Installed. It starts at the next boot, or with `systemctl start {unit}`."]


def _after_uninstall(report: InstallReport, options: UninstallOptions) -> list[str]:
    if report.dry_run:
        return [_dry_run_line(report, is_install=False)]
    if not report.changed:
        other = "" if options.is_kubelet else "; `klet uninstall --kubelet` is for klet in the kubelet's place"
        what = "klet as the kubelet" if options.is_kubelet else f"The node in {report.state_dir}"
        return [f"{what} is not installed{other}."]
    if options.is_kubelet:
        return ["Uninstalled. The containers of pods keep running."]
    if options.should_purge:
        return ["Uninstalled, with all data."]
    place = "" if report.state_dir == "/var/lib/klet" else f" --state-dir {report.state_dir}"
    return [
        f"Uninstalled. Images, logs and records stay in {report.state_dir}; `klet down --purge{place}` removes them."
    ]


def _dry_run_line(report: InstallReport, *, is_install: bool) -> str:
    if not report.changed:
        return "Dry run: nothing to do."
    done = [f"{verb} {file.path}" for file in report.files if (verb := _FILE_VERBS.get(file.action))]
    # A unit that goes on with the original kubelet stays as it is.
    switched = [unit for unit in report.units if unit.enabled is not is_install and unit.action != "restarted"]
    done += [f"{'enable' if is_install else 'disable'} {unit.name}" for unit in switched]
    done += [f"{verb} {unit.name}" for unit in report.units if (verb := _UNIT_VERBS.get(unit.action))]
    return f"Dry run: would {', '.join(done)}."


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _show_file(file: WantedFile) -> None:
    print(as_terminal_text(f"# {file.path}"))
    print(as_terminal_text(file.text))


def _skip_file(_file: WantedFile) -> None:
    """Leave standard output to the report."""
