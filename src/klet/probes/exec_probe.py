"""Probes that run a command in the container."""

from klet.api.container import Container
from klet.api.handlers import ExecAction
from klet.cri.errors import CriError, ExecTimeout
from klet.cri.port import CommandRunner
from klet.model.expansion import ExpansionError, expand_all
from klet.model.foreign_text import read_output
from klet.probes.handler import MAX_OUTPUT, ProbeAnswer, ProbeOutcome, ProbeTarget
from klet.wire import cri_v1_pb2 as cri


async def probe_exec(runtime: CommandRunner, action: ExecAction, target: ProbeTarget) -> ProbeOutcome:
    """Run the command: exit code 0 is success; one that does not end in time has failed."""
    try:
        request = cri.ExecSyncRequest(
            container_id=target.id,
            cmd=expand_command(action, target.container),
            timeout=int(target.timeout.total_seconds()),
        )
        answer = await runtime.exec_sync(request)
    except ExecTimeout as error:
        return ProbeOutcome(ProbeAnswer.FAILURE, str(error))
    except (CriError, ExpansionError) as error:
        return ProbeOutcome(ProbeAnswer.UNKNOWN, error=str(error))
    output = read_output(answer.stdout, answer.stderr, limit=MAX_OUTPUT)
    return ProbeOutcome(ProbeAnswer.FAILURE if answer.exit_code else ProbeAnswer.SUCCESS, output)


def expand_command(action: ExecAction, container: Container) -> list[str]:
    """Return the expanded command. Only values in the spec are known here; variables from elsewhere are empty."""
    values = {variable.name: variable.value for variable in container.env}
    return expand_all(action.command, values)
