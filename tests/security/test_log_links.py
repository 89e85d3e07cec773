"""Logs that lead elsewhere: a pod with a hostPath of the log directory has put something else in their place."""

import os


def link(log, outside):
    log.unlink()
    log.symlink_to(outside / "flag")


def link_upwards(log, outside):
    log.unlink()
    log.symlink_to(os.path.relpath(outside / "flag", log.parent))


def link_a_directory(log, outside):
    (outside / log.name).write_text("2030-01-01T00:00:00Z stdout F flag of the host\n")
    log.parent.rename(log.parent.with_name("away"))
    log.parent.symlink_to(outside)


def link_the_directory_of_the_pod(log, outside):
    (outside / log.parent.name).mkdir()
    (outside / log.parent.name / log.name).write_text("2030-01-01T00:00:00Z stdout F flag of the host\n")
    pod = log.parent.parent
    pod.rename(pod.with_name("away"))
    pod.symlink_to(outside)


def pipe(log, outside):
    log.unlink()
    os.mkfifo(log)


def endless_device(log, outside):
    log.unlink()
    os.mknod(log, 0o20666, os.makedev(1, 5))  # /dev/zero


SWAPS = (link, link_upwards, link_a_directory, link_the_directory_of_the_pod, pipe, endless_device)


def log_of(target, uid):
    return next(target.node.logs.glob(f"*_{uid}")) / "main" / "0.log"


async def test_a_log_that_is_something_else_is_neither_read_nor_followed_when_it_goes(attack, pod, outside):
    target = await attack.on()
    async with attack.run(target):
        for number, swap in enumerate(SWAPS):
            name = f"web{number}"
            uid = (await target.start(pod(name))).metadata.uid
            target.runtime.write_log(target.container("main").id, "said by main")
            assert await target.ask(f"/containerLogs/default/{name}-node/main") == (200, "said by main\n")
            elsewhere = outside / name
            elsewhere.mkdir()
            (elsewhere / "flag").write_text("2030-01-01T00:00:00Z stdout F flag of the host\n")
            swap(log_of(target, uid), elsewhere)
            await assert_unread(target, name, swap)
        before = sorted(str(path) for path in outside.rglob("*"))
        for number in range(len(SWAPS)):
            target.node.remove(f"web{number}")
        await target.agent.until(lambda pods: not pods, what="the end of the pods")
        await target.agent.until_recorded(is_empty(target.node.root / "pods"), what="the end of their directories")
        assert sorted(str(path) for path in outside.rglob("*")) == before


async def assert_unread(target, name, swap):
    for query in ("", "?tailLines=10", "?limitBytes=100", "?timestamps=true"):
        status, text = await target.ask(f"/containerLogs/default/{name}-node/main{query}")
        assert "flag of the host" not in text, swap
        assert "\0" not in text, swap
        assert status == 200, swap


def is_empty(path):
    async def holds():
        return not any(path.iterdir())

    return holds


async def test_the_next_log_is_not_written_through_a_link(attack, pod, outside):
    """The names of the logs to come are known: somebody has put links there for the runtime to follow."""
    flag = outside / "flag"
    flag.write_text("flag of the host")
    async with attack() as target:
        uid = (await target.start(pod("web"))).metadata.uid
        log_of(target, uid).with_name("1.log").symlink_to(flag)
        target.runtime.end_container(target.container("main").id, 1)
        await target.agent.until(has_restarted, what="a restart")
        target.runtime.write_log(target.container("main").id, "said by main")
        assert await target.ask("/containerLogs/default/web-node/main") == (200, "said by main\n")
        assert flag.read_text() == "flag of the host"


def has_restarted(pods):
    [status] = pods["web"].status.container_statuses
    return status.restart_count == 1 and status.state.running


async def test_the_termination_message_is_not_read_through_a_link(attack, pod, outside):
    """Both the file for them and the log, which stands in for it."""
    policy = {"terminationMessagePolicy": "FallbackToLogsOnError"}
    async with attack() as target:
        uid = (await target.start(pod("web", main=policy, spec={"restartPolicy": "Never"}))).metadata.uid
        (words,) = (target.node.root / "pods" / uid / "containers" / "main").iterdir()
        link(words, outside)
        link(log_of(target, uid), outside)
        target.runtime.end_container(target.container("main").id, 1)
        await target.agent.until(lambda pods: pods["web"].status.phase == "Failed", what="its end")
        assert "flag of the host" not in await target.agent.text("/pods")
        assert "flag of the host" not in await target.agent.text("/klet/v1/journal")
