"""From the end of a container, as containerd dates it, to the pod's terminal phase at a client of the agent."""

import statistics

from bench.floor import Floor
from bench.node import AgentUnderTest, Node
from bench.rows import Round, Row
from klet.cri.client import CriClient
from klet.wire import cri_v1_pb2 as cri

COUNT = 12
MOST = 0.15
SCRIPTS = tuple(f"sleep {5 + 0.4 * number:.1f}" for number in range(COUNT))


async def measure_exits(client: CriClient, floor: Floor, node: Node, *, rounds: int) -> list[Row]:
    """End containers one after the other. The floor: when a client that polls the runtime constantly sees the exit."""
    theirs: list[Round] = []
    ours: list[Round] = []
    for number in range(rounds):
        theirs.append(await floor.exit_delays(SCRIPTS))
        async with node.agent() as agent:
            ours.append(await _delays(agent, client, [f"exit-{number}-{pod}" for pod in range(COUNT)]))
    return [
        Row(
            what="exit to terminal phase, p50",
            klet=statistics.median(each.p50 for each in ours),
            floor=statistics.median(each.p50 for each in theirs),
            unit="s",
            most=MOST,
        )
    ]


async def _delays(agent: AgentUnderTest, client: CriClient, names: list[str]) -> Round:
    async with agent.watch() as watch:
        for name, script in zip(names, SCRIPTS, strict=True):
            agent.write(name, script, policy="Never")
        found = await watch.until(names, "PhaseChanged", "-> Succeeded")
    ended = await find_ends(client)
    return Round(tuple(found[name] - ended[f"{name}-bench"] for name in names))


async def find_ends(client: CriClient) -> dict[str, float]:
    """When the container of each pod ended, as containerd dates it, by the pods' names."""
    ended = {}
    for container in (await client.list_containers(cri.ListContainersRequest())).containers:
        answer = await client.container_status(cri.ContainerStatusRequest(container_id=container.id))
        ended[container.labels["io.kubernetes.pod.name"]] = answer.status.finished_at / 1e9
    return ended
