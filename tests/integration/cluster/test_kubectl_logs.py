"""kubectl logs through a real API server: while they are written, of the instance before, of some time, of all."""

import asyncio
from datetime import datetime, timedelta

import pytest

from klet.testing.control_plane.programs import KUBECTL, find_program

LINES = 5000
WRITE = f"""awk 'BEGIN {{ for (i = 0; i < {LINES}; i++) print "line " i }}'"""
# It ends when all was read: containerd 1.6 now and then drops what a container wrote just before its end, whichever
# kubelet runs, and then the file of the log has less than was written.
TWICE = f"{WRITE}; until [ -e /go ]; do sleep 0.05; done; {WRITE}; until [ -e /end ]; do sleep 0.05; done"
CRASH = "if [ -e /kept/once ]; then echo second; sleep 100000; else touch /kept/once; echo first; exit 3; fi"
TIMED = "trap 'exit 0' TERM; echo old; until [ -e /go ]; do sleep 0.05; done; echo new; sleep 100000 & wait $!"


def is_running(pod):
    return pod.status.phase == "Running"


async def test_a_follower_sees_every_line_once_until_the_container_ends(ready, api, node, manifest):
    await api.create(manifest("twice", main=TWICE, spec={"restartPolicy": "Never"}), node=node.name)
    await api.until_pod("twice", is_running, what="Running")
    pipe = asyncio.subprocess.PIPE
    command = (str(find_program(KUBECTL)), f"--kubeconfig={api.plane.admin}", "logs", "-f", "twice")
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    try:
        async with asyncio.timeout(60):
            before = [await process.stdout.readline() for _ in range(LINES)]
            await api.kubectl("exec", "twice", "--", "touch", "/go")
            after = [await process.stdout.readline() for _ in range(LINES)]
            await api.kubectl("exec", "twice", "--", "touch", "/end")
            rest, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()
    written = [b"line %d\n" % number for number in range(LINES)]
    assert (process.returncode, errors) == (0, b"")
    assert before == written
    assert after == written
    assert rest == b""


async def test_the_instance_before(ready, api, node, manifest):
    pod = manifest("crashed", main=CRASH, spec={"volumes": [{"name": "kept", "emptyDir": {}}]})
    pod["spec"]["containers"][0]["volumeMounts"] = [{"name": "kept", "mountPath": "/kept"}]
    await api.create(pod, node=node.name)

    def runs_again(pod):
        return any(each.restart_count == 1 and each.state.running for each in pod.status.container_statuses)

    await api.until_pod("crashed", runs_again, what="it runs again")
    assert await api.kubectl("logs", "crashed", "--previous") == "first\n"

    async def read():
        return await api.kubectl("logs", "crashed")

    assert await api.until(read, lambda text: text == "second\n") == "second\n"


async def test_an_instance_that_never_was(ready, api, node, manifest):
    await api.create(manifest("only"), node=node.name)
    await api.until_pod("only", is_running, what="Running")
    with pytest.raises(AssertionError, match='previous terminated container "main" in pod "only" not found'):
        await api.kubectl("logs", "only", "--previous")


async def test_lines_of_some_time(ready, api, node, manifest):
    await api.create(manifest("timed", main=TIMED), node=node.name)
    await api.until_pod("timed", is_running, what="Running")

    async def old():
        return await api.kubectl("logs", "timed", "--since=2s")

    assert await api.until(old, lambda text: not text) == ""
    await api.kubectl("exec", "timed", "--", "touch", "/go")

    async def everything():
        return await api.kubectl("logs", "timed", "--timestamps")

    lines = (await api.until(everything, lambda text: text.endswith("new\n"))).splitlines()
    assert [line.split(" ", 1)[1] for line in lines] == ["old", "new"]
    assert await api.kubectl("logs", "timed", "--since=1h") == "old\nnew\n"
    first, second = (datetime.fromisoformat(line.split()[0]) for line in lines)
    # The API server hands on whole seconds; the lines are two of them apart.
    assert second - first > timedelta(seconds=1)
    whole = second.replace(microsecond=0).isoformat()
    assert await api.kubectl("logs", "timed", f"--since-time={whole}") == "new\n"


async def test_some_of_many_containers(ready, api, node, manifest):
    spec = {"restartPolicy": "Never"}
    await api.create(manifest("many", one="echo 1; echo 2", two="echo 3 >&2; echo 4 >&2", spec=spec), node=node.name)
    await api.until_pod("many", lambda pod: pod.status.phase == "Succeeded", what="Succeeded")
    shown = await api.kubectl("logs", "many", "--all-containers", "--prefix")
    # kubectl takes the containers from a map: which is the first is chance.
    of_one, of_two = ["[pod/many/one] 1", "[pod/many/one] 2"], ["[pod/many/two] 3", "[pod/many/two] 4"]
    assert shown.splitlines() in (of_one + of_two, of_two + of_one)
    assert await api.kubectl("logs", "many", "-c", "two", "--tail=1") == "4\n"
    assert await api.kubectl("logs", "many", "-c", "two", "--limit-bytes=3") == "3\n4"
