"""`klet up`: makes the machine a node, applies the user's manifests and waits for their pods."""

import asyncio
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import FrameType

import msgspec
from msgspec import Struct

from klet.aio.clock import Clock
from klet.api.klet_v1 import PodResult, UpReport
from klet.api.pod import Pod
from klet.cli.apply_plan import PodKey, plan_apply, read_applied
from klet.cli.checking import node_name
from klet.cli.client import AgentClient, AgentUnavailable
from klet.cli.down import run_down
from klet.cli.install.installed import find_installed
from klet.cli.install.machine_files import MachineFiles
from klet.cli.install.systemd import Systemd
from klet.cli.install.units import node_units
from klet.cli.journal_feed import JournalFeed
from klet.cli.keepers import advise, is_installed, is_kept
from klet.cli.manifests import (
    Input,
    ManifestChecker,
    digest_of,
    read_input,
    read_signatures,
)
from klet.cli.node.daemons import AGENT, daemon
from klet.cli.node.host_ledger import HostLedger
from klet.cli.node.node import LocalNode, NodeError, find_node, last_lines, locked, make_state_directory, require_root
from klet.cli.node.preparation import NodePreparation
from klet.cli.progress import CommandProgress
from klet.cli.verdict import Broken, Done, Pending, Verdict
from klet.cli.waiting import AppliedPod, PodWaiter, key_of
from klet.host.files import read_bytes, remove_file, write_atomic

AGENT_DEADLINE = timedelta(seconds=30)
AGENT_POLL = timedelta(milliseconds=50)
FILES_SECONDS = 0.5
INTERRUPTED = 130


class UpOptions(Struct, frozen=True, kw_only=True):
    """What the user asked for."""

    files: tuple[str, ...]
    state: Path
    timeout: timedelta
    detach: bool = False
    may_install: bool = True
    watch: bool = False
    strict: bool = False
    as_json: bool = False
    verbose: bool = False


class Up:
    """One run of `klet up`."""

    def __init__(
        self,
        *,
        node: LocalNode,
        options: UpOptions,
        check: ManifestChecker,
        files: MachineFiles,
        progress: CommandProgress,
        clock: Clock,
    ) -> None:
        self._node = node
        self._files = files
        self._options = options
        self._check = check
        self._progress = progress
        self._clock = clock
        self._client = AgentClient(socket_path=node.paths.agent_socket, advise=partial(advise, node, files))
        self.is_up = False
        """Whether the pods were found ready, so that an interruption is an ordinary end."""

    def run(self) -> int:
        given = self._read()
        self._print_problems(given)
        if given.errors and not any(origin.pods for origin in given.origins):
            self._report(given, {})
            return 1
        began = self._clock.now()
        make_state_directory(self._node)
        with locked(self._node):
            self._prepare()
            awaited = self._apply(given)
        with JournalFeed(client=self._client, since=began) as feed:
            waiter = PodWaiter(
                pods=self._client,
                feed=feed,
                progress=self._progress,
                clock=self._clock,
                node_name=node_name(),
                is_verbose=self._options.verbose,
            )
            verdicts = waiter.wait(awaited, seconds=self._options.timeout.total_seconds())
            code = self._conclude(given, verdicts)
            if code:
                return code
            self.is_up = True
            self._print_up(awaited)
            if self._options.detach:
                return code
            return self._follow(waiter, awaited, given)

    def _read(self) -> Input:
        return read_input(
            self._options.files, check=self._check, is_strict=self._options.strict, stdin=sys.stdin.buffer
        )

    def _print_problems(self, given: Input) -> None:
        for warning in given.warnings:
            self._progress.warn(warning)
        for error in given.errors:
            self._progress.error(error)

    def _prepare(self) -> None:
        installed = find_installed(
            self._node, files=self._files, systemd=Systemd(root=self._files.root), clock=self._clock
        )
        if installed is not None:
            with self._progress.step("Installed node") as step:
                step.note(f"runs as process {asyncio.run(installed.start())}")
                asyncio.run(self._until_healthy())
            return
        preparation = NodePreparation(node=self._node, ledger=HostLedger(), progress=self._progress, clock=self._clock)
        asyncio.run(preparation.run(may_install=self._options.may_install))
        with self._progress.step("Agent") as step:
            asyncio.run(self._until_healthy())
            process = daemon(self._node, AGENT)
            step.note(f"runs as process {process.pid}" if process else "runs")

    async def _until_healthy(self) -> None:
        began = self._clock.monotonic()
        while not self._client.is_healthy():
            if self._clock.monotonic() - began > AGENT_DEADLINE.total_seconds():
                raise NodeError(f"the agent does not answer; {self._end_of_log()}")
            await self._clock.sleep(AGENT_POLL)

    def _end_of_log(self) -> str:
        if is_installed(self._node, self._files):
            unit = node_units(self._node.names).agent
            return Systemd(root=self._files.root).explain_failure(unit, "it runs")
        log = self._node.paths.logs / "agent.log"
        return f"{log} ends with:\n{last_lines(log)}"

    def _apply(self, given: Input) -> list[AppliedPod]:
        paths = self._node.paths
        present = {file.name: read_bytes(file) for file in paths.manifests.iterdir() if not file.name.startswith(".")}
        plan = plan_apply(
            given.origins, applied=read_applied(paths.applied), present=present, directories=given.directories
        )
        # Remembered first: a pod that runs without an owner would never be taken away again.
        write_atomic(paths.applied, msgspec.json.encode(plan.applied))
        for name in plan.remove:
            remove_file(paths.manifests / name)
        for name, content in plan.write.items():
            write_atomic(paths.manifests / name, content)
        kept = {"added": plan.added, "changed: replaced": plan.changed, "unchanged": plan.unchanged}
        for word, keys in {**kept, "removed": plan.removed}.items():
            for key in keys:
                self._progress.show(f"{key.label}: {word}")
        for key, owner in plan.taken.items():
            self._progress.warn(f"{key.label}: came from {owner} until now, and belongs to the file given last")
        return [AppliedPod(pod.key, digest_of(pod.content)) for origin in given.origins for pod in origin.pods]

    def _conclude(self, given: Input, verdicts: Mapping[PodKey, Verdict]) -> int:
        failed = {key: verdict for key, verdict in verdicts.items() if not isinstance(verdict, Done)}
        for key, verdict in failed.items():
            # What is broken for good was shown when it was seen.
            if isinstance(verdict, Pending):
                self._progress.error(f"{key.label}: {_failure(verdict, self._options.timeout)}")
        if failed:
            self._progress.show(f"The node stays up. {self._hint(next(iter(failed)))}")
        self._report(given, verdicts)
        return 1 if failed or given.errors else 0

    def _report(self, given: Input, verdicts: Mapping[PodKey, Verdict]) -> None:
        if not self._options.as_json:
            return
        pods = tuple(_result(key, verdict, self._options.timeout) for key, verdict in verdicts.items())
        report = UpReport(str(self._node.paths.state), pods, given.errors, given.warnings)
        sys.stdout.write(msgspec.json.encode(report).decode() + "\n")
        sys.stdout.flush()

    def _print_up(self, awaited: Sequence[AppliedPod]) -> None:
        own = {pod.key for pod in awaited}
        others = sorted({key.label for pod in self._pods() if (key := key_of(pod)) not in own})
        if is_installed(self._node, self._files):
            end = "It is installed and starts at boot with these pods."
            end += "" if self._options.detach else " Ctrl-C ends this command only."
        elif self._options.detach:
            place = "" if self._node.is_default else f" --state-dir {self._node.paths.state}"
            end = f"`klet down{place}` takes it down."
        elif others:
            end = f"Ctrl-C takes it down, also the pods of other commands: {', '.join(others)}."
        else:
            end = "Ctrl-C takes it down."
        self._progress.show(f"The node is up. {end}")
        self._progress.show(self._hint(awaited[0].key if awaited else None))

    def _pods(self) -> tuple[Pod, ...]:
        try:
            return self._client.pods()
        except AgentUnavailable:
            return ()

    def _hint(self, key: PodKey | None) -> str:
        name = key.label if key else "NAME"
        where = self._node.paths.state
        place = "" if self._node.is_default else f" (each with --state-dir {where})"
        return f"Look at it with `klet ps`, `klet logs {name}`, `klet explain pod/{name}`{place}."

    def _follow(self, waiter: PodWaiter, awaited: Sequence[AppliedPod], given: Input) -> int:
        """Show what happens until Ctrl-C or until the node is gone; with --watch apply what changes."""
        while True:
            waiter.show_records(FILES_SECONDS)
            if not is_kept(self._node, self._files):
                return self._print_gone()
            if self._is_going():
                continue
            waiter.look(awaited)
            if self._options.watch and read_signatures(self._options.files) != given.signatures:
                given = self._read()
                self._print_problems(given)
                with locked(self._node):
                    awaited = self._apply(given)

    def _is_going(self) -> bool:
        """Return whether another command takes the node down: it forgets the applied pods before it stops anything."""
        return not self._node.paths.applied.exists()

    def _print_gone(self) -> int:
        if self._is_going():
            self._progress.show("The node was taken down by another command.")
            return 0
        self._progress.error("the node's supervisor has ended; `klet up` starts it again, `klet down` cleans up")
        return 1


def run_up(
    options: UpOptions, *, check: ManifestChecker, files: MachineFiles, progress: CommandProgress, clock: Clock
) -> int:
    require_root("up")
    node = find_node(options.state)
    # A service manager's stop and a terminal that was closed are the same wish as Ctrl-C.
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGHUP, _interrupt)
    up = Up(node=node, options=options, check=check, files=files, progress=progress, clock=clock)
    try:
        return up.run()
    except KeyboardInterrupt:
        progress.waiting("")
        if options.detach:
            progress.show("Interrupted; what was started stays. `klet down` takes it away.")
            return INTERRUPTED
        if is_installed(node, files):
            progress.show("Interrupted; the node is installed and stays, with its pods. `klet down` stops it.")
            return 0 if up.is_up else INTERRUPTED
        if not up.is_up:
            progress.show("Interrupted; the node is taken down.")
    with suppress(KeyboardInterrupt):
        run_down(options.state, should_purge=False, files=files, progress=progress, clock=clock)
        return 0 if up.is_up else INTERRUPTED
    progress.error("interrupted while taking the node down; `klet down` finishes it")
    return INTERRUPTED


def _interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of signal handlers
    raise KeyboardInterrupt


def _failure(verdict: Verdict, timeout: timedelta) -> str:
    match verdict:
        case Broken(reason):
            return f"failed: {reason}"
        case Pending(reason):
            return f"not ready after {timeout.total_seconds():g}s: {reason}"
        case Done(how):
            return how


def _result(key: PodKey, verdict: Verdict, timeout: timedelta) -> PodResult:
    match verdict:
        case Done(how):
            return PodResult(key.namespace, key.name, how)
        case Broken():
            return PodResult(key.namespace, key.name, "Failed", _failure(verdict, timeout))
        case Pending():
            return PodResult(key.namespace, key.name, "NotReady", _failure(verdict, timeout))
