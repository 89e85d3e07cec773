"""Disks filled by way of the node's own files: /etc/hosts (CVE-2020-8557), the file for termination message, logs.

What a node does about it today: such files cost no memory, /etc/hosts is written again by the next start, and all of it
goes with the pod. Eviction by local storage and the rotation of logs are not built yet.
"""

import os

HUGE = 256 << 20
HOLE = 8 << 40
LITTLE_MEMORY = 24 << 20
LAST_WORDS, LAST_LINES = 4096, 2048


def grow(file, end=b""):
    """A file without blocks, but with a size; as a container would make it in a moment."""
    with open(file, "r+b") as opened:
        opened.truncate(HUGE)
        opened.seek(0, os.SEEK_END)
        opened.write(end)


def files_of(target, uid):
    directory = target.node.root / "pods" / uid
    (words,) = (directory / "containers" / "main").iterdir()
    return directory / "etc-hosts", words, next(target.node.logs.glob(f"*_{uid}")) / "main" / "0.log"


async def end(target, name):
    target.runtime.end_container(target.container("main").id, 1)
    await target.agent.until(lambda pods: pods[name].status.phase == "Failed", what="its end")
    [status] = (await target.agent.pod(name)).status.container_statuses
    return status.state.terminated.message


async def test_termination_messages_cost_no_memory_and_stay_short(attack, pod):
    policies = {"words": "File", "lines": "FallbackToLogsOnError"}
    async with attack() as target:
        await target.start(pod("quiet"))
        before = target.memory()
        for name, policy in policies.items():
            main = {"terminationMessagePolicy": policy}
            uid = (await target.start(pod(name, main=main, spec={"restartPolicy": "Never"}))).metadata.uid
            _, words, log = files_of(target, uid)
            if name == "words":
                grow(words, b"the end")
            else:
                grow(log, b"\n2030-01-01T00:00:00Z stdout F the end\n")
            message = await end(target, name)
            assert len(message.encode()) <= (LAST_WORDS if name == "words" else LAST_LINES)
        assert target.memory() - before < LITTLE_MEMORY


async def test_the_last_lines_of_logs_without_end_delay_no_other(attack, pod):
    """More logs than there are threads for termination message, each with a hole that takes hours to read."""
    main = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    async with attack() as target:
        for number in range(3):
            name = f"hole{number}"
            uid = (await target.start(pod(name, main=main, spec={"restartPolicy": "Never"}))).metadata.uid
            _, _, log = files_of(target, uid)
            os.truncate(log, HOLE)
            assert await end(target, name) == ""
        await target.start(pod("other", spec={"restartPolicy": "Never"}))
        assert await end(target, "other") == ""


async def test_a_log_costs_no_memory_and_delays_no_other(attack, pod):
    async with attack() as target:
        uid = (await target.start(pod("web"))).metadata.uid
        _, _, log = files_of(target, uid)
        grow(log, b"\n2030-01-01T00:00:00Z stdout F the end\n")
        before = target.memory()
        for query in ("?tailLines=1", "?limitBytes=100"):
            status, text = await target.ask(f"/containerLogs/default/web-node/main{query}")
            assert status == 200
            assert len(text) < 4096
        assert target.memory() - before < LITTLE_MEMORY
        assert (await target.ask("/healthz/syncloop"))[0] == 200


async def test_hosts_are_short_again_after_a_restart_and_all_goes_with_the_pod(attack, pod):
    async with attack() as target:
        uid = (await target.start(pod("web"))).metadata.uid
        hosts, words, log = files_of(target, uid)
        for file in (hosts, words, log):
            grow(file)
        target.runtime.end_container(target.container("main").id, 1)
        await target.agent.until(lambda pods: restarts(pods) == 1, what="a restart")
        assert hosts.stat().st_size < 4096
        grow(hosts)
        target.node.remove("web")
        await target.agent.until(lambda pods: not pods, what="the end of the pod")
        await target.agent.until_recorded(gone(hosts, words, log), what="the end of its files")


def restarts(pods):
    [status] = pods["web"].status.container_statuses
    return status.restart_count if status.state.running else None


def gone(*files):
    async def holds():
        return not any(file.exists() for file in files)

    return holds
