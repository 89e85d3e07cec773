"""The command line: options and help for each command. The work is in the modules that the commands call."""

import os
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from klet.aio.wall import WallClock
from klet.api.klet_v1 import Explanation, InstallReport, UpReport, VersionReport, encode, field_names
from klet.api.klet_v1_fit import API, STATIC, FitAnswer
from klet.api.klet_v1_topology import MachineTopology
from klet.api.times import Duration, TimeError
from klet.cli.client import AgentClient
from klet.cli.image_app import add_image_commands
from klet.cli.install.machine_files import machine_files
from klet.cli.keepers import advise
from klet.cli.node.node import find_node
from klet.cli.node.paths import DEFAULT_STATE
from klet.cli.pod_commands import (
    PodFormat,
    log_query,
    print_logs,
    print_pods,
    watch_pods,
)
from klet.errors import KletError
from klet.model.foreign_text import as_terminal_text
from klet.version import KUBELET_VERSION, KUBERNETES_VERSION, __version__

if TYPE_CHECKING:
    from klet.cli.install.commands import InstallCommands

INTERRUPTED = 130

app = typer.Typer(
    name="klet",
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


StateDir = Annotated[
    Path, typer.Option("--state-dir", envvar="KLET_STATE_DIR", help="Directory of the node; one directory is one node.")
]
Namespace = Annotated[str | None, typer.Option("--namespace", "-n", help="Only this namespace; all without it.")]
PodName = Annotated[
    str, typer.Argument(metavar="POD", help="Its name, or its name in the manifest; namespace/name too.")
]


_KUBELET_HELP = "klet as the kubelet of a cluster, in the layout of upstream's packages, instead of a node of its own."
_INSTALL_EXAMPLES = """Examples:

`klet install` then `klet up -d pods.yaml`: a node with these pods, now and after each boot.

`klet install --dry-run`: shows the units.

`klet install --kubelet` then `kubeadm join …`: klet as the kubelet of a cluster.

`klet install --kubelet --replace`: the same on a machine that has a kubelet.
"""
_UNINSTALL_EXAMPLES = """Examples:

`klet uninstall`: the machine as before, with images and logs in the state directory.

`klet uninstall --purge`: without them.

`klet uninstall --kubelet`: puts the kubelet back that was there before.
"""
_FIT_EXAMPLES = """Examples:

`klet fit pod.yaml`: as `klet up` would run it; on a node of a cluster, as if a scheduler had bound it.

`klet fit --static pod.yaml`: as a manifest in the directory of static pods, for which other pods are stopped.
"""


def _json_help(cls: type[Struct]) -> str:
    return f"Print JSON with the fields {field_names(cls)}."


def _print_version(wanted: bool) -> None:
    if wanted:
        version()
        raise typer.Exit


@app.callback()
def with_options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="The same as `klet version`.")
    ] = False,
) -> None:
    """A kubelet in Python, and a Kubernetes node in one command."""


@app.command()
def up(
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE…", help="Manifests of pods: files, directories, `-` for standard input."),
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return once the pods are ready; the node stays.")
    ] = False,
    timeout: Annotated[str, typer.Option(metavar="DURATION", help="How long to wait for the pods.")] = "5m",
    no_install: Annotated[
        bool, typer.Option("--no-install", help="Install nothing; list the missing packages.")
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Apply the files again whenever they change.")] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Refuse manifests with unknown fields.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Show every decision of the agent.")] = False,
    output: Annotated[str, typer.Option("--output", "-o", metavar="json", help=_json_help(UpReport))] = "",
    state_dir: StateDir = DEFAULT_STATE,
) -> None:
    """Make this machine a node, run the pods of FILE…, and wait until each is Ready or has Succeeded."""
    # Imported here: asyncio, gRPC and the terminal's display take a while, and `klet ps` needs none of it.
    from klet.aio.clock import SystemClock  # noqa: PLC0415
    from klet.cli.checking import check_manifest  # noqa: PLC0415
    from klet.cli.manifests import STDIN  # noqa: PLC0415
    from klet.cli.progress import choose_progress  # noqa: PLC0415
    from klet.cli.up import UpOptions, run_up  # noqa: PLC0415

    if watch and (detach or not files or STDIN in files):
        raise typer.BadParameter("--watch follows files: it goes with files, and neither with --detach nor with `-`")
    clock = SystemClock()
    options = UpOptions(
        files=tuple(files or ()),
        state=state_dir,
        timeout=_duration(timeout, "--timeout"),
        detach=detach,
        may_install=not no_install,
        watch=watch,
        strict=strict,
        as_json=_is_json(output),
        verbose=verbose,
    )
    progress = choose_progress(clock=clock)
    raise typer.Exit(run_up(options, check=check_manifest, files=machine_files(), progress=progress, clock=clock))


@app.command()
def down(
    purge: Annotated[
        bool, typer.Option("--purge", help="Remove the state directory too: images, logs, records.")
    ] = False,
    state_dir: StateDir = DEFAULT_STATE,
) -> None:
    """Stop the pods and the node, and clean up the machine."""
    # Imported here for the same reason as above.
    from klet.aio.clock import SystemClock  # noqa: PLC0415
    from klet.cli.down import run_down  # noqa: PLC0415
    from klet.cli.progress import choose_progress  # noqa: PLC0415

    clock = SystemClock()
    progress = choose_progress(clock=clock)
    raise typer.Exit(run_down(state_dir, should_purge=purge, files=machine_files(), progress=progress, clock=clock))


@app.command(epilog=_INSTALL_EXAMPLES)
def install(
    kubelet: Annotated[bool, typer.Option("--kubelet", help=_KUBELET_HELP)] = False,
    now: Annotated[
        bool,
        typer.Option("--now/--no-start", help="Start it now and wait until it is Ready, or only at the next boot."),
    ] = True,
    no_install: Annotated[
        bool, typer.Option("--no-install", help="Install no packages; list the missing ones.")
    ] = False,
    replace: Annotated[
        bool,
        typer.Option("--replace", help="With --kubelet: keep another kubelet aside; `klet uninstall` puts it back."),
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Write files again that were changed by hand.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be written, and do nothing.")] = False,
    output: Annotated[str, typer.Option("--output", "-o", metavar="json", help=_json_help(InstallReport))] = "",
    state_dir: StateDir = DEFAULT_STATE,
) -> None:
    """Have systemd start the node at boot: a containerd of its own, and the agent.

    Run again, it writes what differs and restarts what changed. Pods keep running.
    """
    # Imported here for the same reason as above.
    from klet.cli.install.commands import InstallOptions  # noqa: PLC0415

    if replace and not kubelet:
        raise typer.BadParameter("--replace is about another kubelet: it goes with --kubelet")
    options = InstallOptions(
        state=state_dir,
        is_kubelet=kubelet,
        should_start=now,
        may_install=not no_install,
        may_replace=replace,
        is_forced=force,
        is_dry_run=dry_run,
        as_json=_is_json(output),
    )
    raise typer.Exit(_install_commands().install(options))


@app.command(epilog=_UNINSTALL_EXAMPLES)
def uninstall(
    kubelet: Annotated[bool, typer.Option("--kubelet", help=_KUBELET_HELP)] = False,
    purge: Annotated[
        bool, typer.Option("--purge", help="Remove the state directory too: images, logs, records.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Remove files too that were changed by hand.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be removed, and do nothing.")] = False,
    output: Annotated[str, typer.Option("--output", "-o", metavar="json", help=_json_help(InstallReport))] = "",
    state_dir: StateDir = DEFAULT_STATE,
) -> None:
    """Undo `klet install`: stop the pods and the node, and remove the units."""
    # Imported here for the same reason as above.
    from klet.cli.install.commands import UninstallOptions  # noqa: PLC0415

    if purge and kubelet:
        raise typer.BadParameter("--purge is about a node's own data: with --kubelet, kubeadm reset removes it")
    options = UninstallOptions(
        state=state_dir,
        is_kubelet=kubelet,
        should_purge=purge,
        is_forced=force,
        is_dry_run=dry_run,
        as_json=_is_json(output),
    )
    raise typer.Exit(_install_commands().uninstall(options))


@app.command(hidden=True)
def boot(
    step: Annotated[str, typer.Argument(metavar="prepare|images", help="Which part of the start.")],
    state_dir: StateDir = DEFAULT_STATE,
) -> None:
    """What the units of an installed node run before and after they start containerd."""
    # Imported here for the same reason as above.
    import asyncio  # noqa: PLC0415

    from klet.aio.clock import SystemClock  # noqa: PLC0415
    from klet.cli.install.boot import BootStep, run_step  # noqa: PLC0415
    from klet.cli.install.systemd import Systemd  # noqa: PLC0415
    from klet.cli.progress import PlainProgress  # noqa: PLC0415

    if step not in set(BootStep):
        raise typer.BadParameter(f"{step} is no step: {', '.join(BootStep)}")
    clock = SystemClock()
    systemd = Systemd(root=machine_files().root)
    node = find_node(state_dir)
    asyncio.run(run_step(BootStep(step), node, systemd=systemd, progress=PlainProgress(clock=clock), clock=clock))


@app.command()
def ps(
    namespace: Namespace = None,
    output: Annotated[
        PodFormat, typer.Option("--output", "-o", metavar="table|wide|json|yaml", help="Another form than the table.")
    ] = PodFormat.TABLE,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Print rows again when they change.")] = False,
    state_dir: StateDir = DEFAULT_STATE,
) -> None:
    """List the pods."""
    client = _client(state_dir)
    if not watch:
        print_pods(client, namespace=namespace, form=output, clock=WallClock())
        return
    if output in {PodFormat.JSON, PodFormat.YAML}:
        raise typer.BadParameter("--watch prints a table; leave -o json or yaml out")
    watch_pods(client, namespace=namespace, is_wide=output is PodFormat.WIDE, clock=WallClock())


@app.command()
def logs(
    pod: PodName,
    container: Annotated[str | None, typer.Option("--container", "-c", help="The first one without it.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the log.")] = False,
    tail: Annotated[int, typer.Option(help="Only so many lines from the end; -1 is all.")] = -1,
    since: Annotated[str | None, typer.Option(metavar="DURATION", help="Only lines that are not older.")] = None,
    timestamps: Annotated[bool, typer.Option("--timestamps", help="Begin each line with its time.")] = False,
    previous: Annotated[bool, typer.Option("--previous", "-p", help="Of the previous container.")] = False,
    namespace: Namespace = None,
    state_dir: StateDir = DEFAULT_STATE,
) -> None:
    """Print the log of a container."""
    query = log_query(
        follow=follow,
        tail=tail,
        since=None if since is None else _duration(since, "--since"),
        timestamps=timestamps,
        previous=previous,
    )
    print_logs(_client(state_dir), pod, namespace=namespace, container=container, query=query)


@app.command()
def topology(
    output: Annotated[str, typer.Option("--output", "-o", metavar="json", help=_json_help(MachineTopology))] = "",
    state_dir: StateDir = DEFAULT_STATE,
) -> None:
    """Show the machine as a picture: sockets, NUMA nodes, cores and memory, and which containers have what alone."""
    from klet.cli.topology import print_topology  # noqa: PLC0415 - as above

    print_topology(_client(state_dir), as_json=_is_json(output))


@app.command()
def explain(
    what: Annotated[
        str,
        typer.Argument(metavar="POD|node", help="A pod by its name, or its name in the manifest; namespace/name too."),
    ],
    every: Annotated[bool, typer.Option("--all", "-a", help="Show every decision, of earlier pods too.")] = False,
    output: Annotated[str, typer.Option("--output", "-o", metavar="json", help=_json_help(Explanation))] = "",
    namespace: Namespace = None,
    state_dir: StateDir = DEFAULT_STATE,
) -> None:
    """Show why a pod is in its state, what comes next, and what happened to it; also for a pod that is gone.

    `klet explain node` shows why the node is ready or not, condition by condition.
    """
    # Imported here for the same reason as above.
    from klet.cli.explain import print_explanation  # noqa: PLC0415

    print_explanation(_client(state_dir), what, namespace=namespace, as_json=_is_json(output), is_whole=every)


@app.command(epilog=_FIT_EXAMPLES)
def fit(
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE…", help="Manifests of pods: files, directories, `-` for standard input."),
    ],
    static: Annotated[
        bool | None,
        typer.Option("--static/--bound", help="As a static pod, or as one that a scheduler has bound to the node."),
    ] = None,
    output: Annotated[str, typer.Option("--output", "-o", metavar="json", help=_json_help(FitAnswer))] = "",
    state_dir: StateDir = DEFAULT_STATE,
) -> None:
    """Show whether pods would be admitted on this node now, and why not, or who would be stopped for them.

    Nothing is changed. Each pod is looked at for itself. The exit code is 0 if each fits, and otherwise 1.
    """
    # Imported here for the same reason as above.
    from klet.cli.fit import print_fit  # noqa: PLC0415

    source = "" if static is None else (STATIC if static else API)
    client, stdin = _client(state_dir), sys.stdin.buffer
    raise typer.Exit(print_fit(client, files, source=source, as_json=_is_json(output), stdin=stdin))


@app.command()
def version(
    output: Annotated[str, typer.Option("--output", "-o", metavar="json", help=_json_help(VersionReport))] = "",
) -> None:
    """Print klet's version, and the Kubernetes version it follows."""
    if _is_json(output):
        report = VersionReport(klet=__version__, kubernetes=KUBERNETES_VERSION, kubelet=KUBELET_VERSION)
        print(encode(report).decode())
    else:
        print(f"klet {__version__} (Kubernetes {KUBERNETES_VERSION})")


@app.command("run", add_help_option=False, context_settings={"ignore_unknown_options": True})
def run_agent(flags: Annotated[list[str] | None, typer.Argument(metavar="FLAGS")] = None) -> None:
    """The agent itself, with the kubelet's flags; `klet run --help` lists them."""
    # `klet run` is taken before this module is imported; this stands here for `klet --help` alone.
    raise KletError(f"`klet run` comes first on the command line: klet run {' '.join(flags or ())}")


def main(arguments: Sequence[str]) -> int:
    """Run one command; errors that klet raises on purpose are one line, without a traceback."""
    try:
        app(list(arguments), prog_name="klet")
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else 0
    except KletError as error:
        print(as_terminal_text(f"klet: {error}"), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader has seen enough. Python would complain once more when it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        # A disk that is full or read-only, a limit of the machine: nothing that a traceback would explain better.
        print(as_terminal_text(f"klet: {error}"), file=sys.stderr)
        return 1
    return 0


def _install_commands() -> "InstallCommands":
    # Imported here for the same reason as above.
    from klet.aio.clock import SystemClock  # noqa: PLC0415
    from klet.cli.install.commands import InstallCommands  # noqa: PLC0415
    from klet.cli.install.systemd import Systemd  # noqa: PLC0415
    from klet.cli.progress import choose_progress  # noqa: PLC0415

    clock, files = SystemClock(), machine_files()
    return InstallCommands(
        files=files, systemd=Systemd(root=files.root), progress=choose_progress(clock=clock), clock=clock
    )


def _duration(text: str, option: str) -> timedelta:
    try:
        duration = Duration.parse(text)
    except TimeError as error:
        raise typer.BadParameter(f"{option} {text}: {error} (write 90s, 5m, 1h30m)") from error
    if duration < timedelta(0):
        raise typer.BadParameter(f"{option} {text}: a time that is over")
    return duration


def _client(state_dir: Path) -> AgentClient:
    node = find_node(state_dir)
    return AgentClient(socket_path=node.paths.agent_socket, advise=lambda: advise(node, machine_files()))


def _is_json(output: str) -> bool:
    if output not in {"", "json"}:
        raise typer.BadParameter(f"-o {output}: only json is possible here")
    return output == "json"


add_image_commands(app, _client)
