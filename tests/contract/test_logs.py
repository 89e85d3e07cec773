import re

from klet.wire import cri_v1_pb2 as pb

RECORD = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?Z) (stdout|stderr) ([PF]) (.*)")


def parse(lines):
    return [RECORD.fullmatch(line).groups() for line in lines]


async def test_output_is_written_with_time_stream_and_tag(bench):
    status = await bench.run_to_end(await bench.pod(), "sh", "-c", "echo out; sleep 0.2; echo err >&2")
    records = parse(await bench.until_log(status.log_path, 2))
    assert [record[1:] for record in records] == [("stdout", "F", "out"), ("stderr", "F", "err")]
    assert records[0][0] < records[1][0]


async def test_a_fraction_of_a_second_has_no_trailing_zeros(bench):
    status = await bench.run_to_end(await bench.pod(), "echo", "hello")
    ((time, *_),) = parse(await bench.until_log(status.log_path, 1))
    assert not time.endswith("0Z") or "." not in time


async def test_an_empty_line_is_a_record(bench):
    status = await bench.run_to_end(await bench.pod(), "sh", "-c", "echo; echo after")
    assert [record[3] for record in parse(await bench.until_log(status.log_path, 2))] == ["", "after"]


async def test_a_long_line_is_cut_into_partial_records(bench):
    script = 'head -c 20000 /dev/zero | tr "\\0" x; echo'
    status = await bench.run_to_end(await bench.pod(), "sh", "-c", script)
    records = parse(await bench.until_log(status.log_path, 2))
    assert [(tag, len(text)) for _, _, tag, text in records] == [("P", 16384), ("F", 3616)]


async def test_an_unfinished_line_is_partial(bench):
    status = await bench.run_to_end(await bench.pod(), "printf", "no end")
    assert [record[1:] for record in parse(await bench.until_log(status.log_path, 1))] == [("stdout", "P", "no end")]


async def test_on_a_terminal_all_output_is_stdout(bench):
    def tty(config):
        config.tty = True

    script = "echo out; echo err >&2; sleep 1000"
    container = await bench.run(await bench.pod(), "sh", "-c", script, change=tty)
    path = (await bench.status(container)).log_path
    assert [record[1] for record in parse(await bench.until_log(path, 2))] == ["stdout", "stdout"]


async def test_a_moved_log_is_written_on_until_it_is_reopened(bench):
    container = await bench.run(await bench.pod(), "sh", "-c", "while :; do echo tick; sleep 0.2; done")
    path = (await bench.status(container)).log_path
    await bench.until_log(path, 1)
    bench.move(path, f"{path}.old")
    before = len(bench.log(f"{path}.old").splitlines())
    await bench.until_log(f"{path}.old", before + 1)
    assert bench.log(path) is None
    await bench.client.reopen_container_log(pb.ReopenContainerLogRequest(container_id=container))
    assert parse(await bench.until_log(path, 1))[0][3] == "tick"


async def test_reopening_a_log_that_is_there_appends(bench):
    container = await bench.run(await bench.pod(), "sh", "-c", "while :; do echo tick; sleep 0.2; done")
    path = (await bench.status(container)).log_path
    await bench.until_log(path, 1)
    await bench.client.reopen_container_log(pb.ReopenContainerLogRequest(container_id=container))
    assert len(await bench.until_log(path, 3)) >= 3


async def test_a_container_without_a_log_path_has_no_log(bench):
    container = await bench.run(await bench.pod(), change=lambda config: config.ClearField("log_path"))
    assert (await bench.status(container)).log_path == ""
    await bench.client.reopen_container_log(pb.ReopenContainerLogRequest(container_id=container))


async def test_each_attempt_has_its_own_log(bench):
    pod = await bench.pod()
    first = await bench.run_to_end(pod, "echo", "one")
    second = await bench.run_to_end(pod, "echo", "two", attempt=1)
    assert first.log_path != second.log_path
    assert parse(await bench.until_log(first.log_path, 1))[0][3] == "one"
    assert parse(await bench.until_log(second.log_path, 1))[0][3] == "two"


async def test_a_log_outlives_its_container(bench):
    status = await bench.run_to_end(await bench.pod(), "echo", "kept")
    await bench.until_log(status.log_path, 1)
    await bench.remove(status.id)
    assert bench.log(status.log_path).endswith("kept\n")
