"""Where klet starts: `klet run`, or being called `kubelet`, is the agent; everything else is the command line.

The choice comes before the imports, so that the agent never pays for the command-line libraries.
"""

import gc
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePath

AUTHORITIES = "SSL_CERT_FILE"
"""Where OpenSSL finds the authorities that it trusts by default."""
FORK_SUPPORT = "GRPC_ENABLE_FORK_SUPPORT"
"""Whether gRPC prepares for a child that goes on using its connections; read once, when it is imported."""
OTHERS_WRITE = 0o022
YOUNG = 5000
"""So many new objects are looked through for garbage at a time: nearly all are freed without it long before."""


def main() -> int:
    """Run klet with the process's own arguments."""
    forbid_writing_by_others()
    return dispatch(sys.argv[0], sys.argv[1:])


def forbid_writing_by_others() -> None:
    """Let only the owner write to new files, also if klet was started with a wider umask."""
    os.umask(os.umask(OTHERS_WRITE) | OTHERS_WRITE)


def dispatch(program: str, arguments: Sequence[str]) -> int:
    agent = agent_arguments(program, arguments)
    # Every child of klet runs another program at once. Preparing for more disturbs the calls that are under way.
    os.environ[FORK_SUPPORT] = "0"
    # Imported here, not above: the agent and the command line never load each other's libraries.
    if agent is None:
        from klet.cli.app import main as run_command  # noqa: PLC0415 - as said above

        return run_command(arguments)
    if is_version_request(agent):
        from klet.version import KUBELET_VERSION  # noqa: PLC0415 - as said above

        # kubeadm reads this line, word for word.
        sys.stdout.write(f"Kubernetes {KUBELET_VERSION}\n")
        return 0
    with lightly():
        from klet.app.run import main as run_agent  # noqa: PLC0415 - as said above

    return run_agent(list(agent))


@contextmanager
def lightly() -> Iterator[None]:
    """Import without work for nothing: it is a good part of the time until a node is ready."""
    given = os.environ.get(AUTHORITIES)
    # Modules are no garbage: neither now nor later need they be looked through for it.
    gc.disable()
    # aiohttp reads all the machine's certificate authorities when it is imported; each client of klet has its own.
    os.environ[AUTHORITIES] = os.devnull
    try:
        yield
    finally:
        if given is None:
            del os.environ[AUTHORITIES]
        else:
            os.environ[AUTHORITIES] = given
        gc.freeze()
        gc.set_threshold(YOUNG)
        gc.enable()


def agent_arguments(program: str, arguments: Sequence[str]) -> Sequence[str] | None:
    """Return the agent's own arguments, or None when this is not a call of the agent."""
    if PurePath(program).name == "kubelet":
        return arguments
    if arguments[:1] == ["run"]:
        return arguments[1:]
    return None


def is_version_request(arguments: Sequence[str]) -> bool:
    """Return whether `--version` asks for the short form; `--version=raw` is left to the agent's flags."""
    for argument in arguments:
        if argument == "--":
            return False
        if argument in {"--version", "--version=true"}:
            return True
    return False


if __name__ == "__main__":
    sys.exit(main())
