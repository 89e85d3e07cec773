"""The file source on real directories, with real inotify and a clock that only the test moves."""

import os
from datetime import timedelta
from pathlib import Path

import pytest

from klet.sources.file import FileSource
from klet.sources.manifests import ManifestReader

PERIOD = timedelta(seconds=20)


def manifest(name: str, image: str = "busybox:1") -> str:
    containers = f"[{{name: a, image: '{image}'}}]"
    return f"apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec: {{containers: {containers}}}\n"


@pytest.fixture
def directory(tmp_path):
    directory = tmp_path / "manifests"
    directory.mkdir()
    return directory


@pytest.fixture
def start(running, sink, journal, threads, clock):
    def start(path: Path) -> None:
        running(
            FileSource(
                path=path,
                every=PERIOD,
                reader=ManifestReader(node_name="n"),
                sink=sink,
                recorder=journal,
                threads=threads,
                clock=clock,
            )
        )

    return start


@pytest.fixture
def settled(clock, threads):
    """Waits until the source has nothing more to do but wait."""

    async def settled() -> None:
        await clock.until_asleep()
        await threads.run(lambda: None)
        await threads.run(lambda: None)
        await clock.until_asleep()

    return settled


async def test_what_is_there_is_listed_by_name(directory, start, sink):
    (directory / "b.yaml").write_text(manifest("two"))
    (directory / "a.json").write_text(manifest("one"))
    (directory / ".hidden.yaml").write_text(manifest("hidden"))
    (directory / "below").mkdir()
    (directory / "below" / "c.yaml").write_text(manifest("three"))
    os.mkfifo(directory / "pipe")
    start(directory)
    assert await sink.until(1) == ["one-n", "two-n"]


async def test_an_empty_directory_is_reported(directory, start, sink):
    start(directory)
    assert await sink.until(1) == []


async def test_files_come_change_and_go_without_the_clock_moving(directory, start, sink):
    start(directory)
    await sink.until(1)
    (directory / "web.yaml").write_text(manifest("web"))
    assert await sink.until(2) == ["web-n"]
    (directory / "web.yaml").write_text(manifest("web", image="busybox:2"))
    assert await sink.until(3) == ["web-n"]
    (directory / ".db.tmp").write_text(manifest("db"))
    (directory / ".db.tmp").rename(directory / "db.yaml")
    assert await sink.until(4) == ["db-n", "web-n"]
    (directory / "web.yaml").rename(directory / ".web.off")
    assert await sink.until(5) == ["db-n"]
    (directory / "db.yaml").unlink()
    assert await sink.until(6) == []


async def test_links_count_from_the_moment_they_appear(directory, start, sink, tmp_path):
    elsewhere = tmp_path / "elsewhere.yaml"
    elsewhere.write_text(manifest("linked"))
    start(directory)
    await sink.until(1)
    (directory / "a.yaml").symlink_to(elsewhere)
    assert await sink.until(2) == ["linked-n"]


async def test_the_same_content_again_says_nothing(directory, start, sink, settled):
    (directory / "web.yaml").write_text(manifest("web"))
    start(directory)
    await sink.until(1)
    (directory / "web.yaml").write_text(manifest("web"))
    (directory / "db.yaml").write_text(manifest("db"))
    assert await sink.until(2) == ["db-n", "web-n"]


async def test_of_two_files_with_one_pod_the_last_wins(directory, start, sink, threads):
    (directory / "a.yaml").write_text(manifest("web", image="busybox:1"))
    (directory / "b.yaml").write_text(manifest("web", image="busybox:2"))
    start(directory)
    assert await sink.until(1) == ["web-n"]
    (directory / "b.yaml").unlink()
    assert await sink.until(2) == ["web-n"]


async def test_a_bad_manifest_is_reported_once_and_the_others_run(
    directory, start, sink, journal, clock, settled, caplog
):
    (directory / "a.yaml").write_text(manifest("web"))
    (directory / "b.yaml").write_text("kind: Service")
    start(directory)
    assert await sink.until(1) == ["web-n"]
    for _ in range(3):
        await settled()
        clock.advance(PERIOD)
    assert await journal.reported() == ["ManifestRejected"]
    assert caplog.messages == ["Manifest not used"]
    assert caplog.records[0].error == f"{directory}/b.yaml: document 1: kind: 'Service' is not Pod"


async def test_each_bad_content_is_reported(directory, start, sink, journal, wait_for):
    start(directory)
    await sink.until(1)
    (directory / "b.yaml").write_text("kind: Service")
    (directory / "x.yaml").write_text(manifest("x"))
    await sink.until(2)
    (directory / "b.yaml").write_text("kind: Service\nmetadata: {}\n")
    (directory / "z.yaml").write_text(manifest("z"))
    await sink.until(3)
    assert await journal.reported() == ["ManifestRejected", "ManifestRejected"]
    (directory / "b.yaml").write_text(manifest("b"))
    assert await sink.until(4) == ["b-n", "x-n", "z-n"]
    assert (await journal.reported())[-1] == "ManifestSettled"


async def test_a_pod_whose_manifest_turned_bad_runs_until_the_next_listing(
    directory, start, sink, clock, journal, wait_for
):
    (directory / "web.yaml").write_text(manifest("web"))
    (directory / "db.yaml").write_text(manifest("db"))
    start(directory)
    assert await sink.until(1) == ["db-n", "web-n"]
    (directory / "web.yaml").write_text("half a ")
    await wait_for(lambda: journal._causes)
    assert len(sink.sets) == 1
    assert journal._causes[0].finding.subject.name == "web-n"
    await clock.until_asleep()
    clock.advance(PERIOD)
    assert await sink.until(2) == ["db-n"]


async def test_a_manifest_repaired_in_time_loses_nothing(directory, start, sink, journal, clock, settled, wait_for):
    (directory / "web.yaml").write_text(manifest("web"))
    start(directory)
    await sink.until(1)
    (directory / "web.yaml").write_text("half a ")
    await wait_for(lambda: len(journal._causes) == 1)
    (directory / "web.yaml").write_text(manifest("web"))
    await wait_for(lambda: len(journal._causes) == 2)
    clock.advance(PERIOD)
    await settled()
    assert len(sink.sets) == 1


async def test_a_missing_directory_counts_as_empty_and_is_watched_for(tmp_path, start, sink):
    directory = tmp_path / "later" / "manifests"
    start(directory)
    assert await sink.until(1) == []
    directory.mkdir(parents=True)
    (directory / "web.yaml").write_text(manifest("web"))
    assert await sink.until(2) == ["web-n"]


async def test_a_directory_that_goes_away_takes_its_pods(directory, start, sink):
    (directory / "web.yaml").write_text(manifest("web"))
    start(directory)
    await sink.until(1)
    directory.rename(directory.with_name("moved"))
    assert await sink.until(2) == []


async def test_a_change_without_an_event_is_found_by_the_next_listing(directory, start, sink, clock, tmp_path, settled):
    elsewhere = tmp_path / "elsewhere.yaml"
    elsewhere.write_text(manifest("one"))
    (directory / "a.yaml").symlink_to(elsewhere)
    start(directory)
    assert await sink.until(1) == ["one-n"]
    await settled()
    elsewhere.write_text(manifest("two"))
    clock.advance(PERIOD)
    assert await sink.until(2) == ["two-n"]


async def test_a_single_file_is_followed(directory, start, sink):
    path = directory / "only.yaml"
    path.write_text(manifest("one"))
    (directory / "other.yaml").write_text(manifest("other"))
    start(path)
    assert await sink.until(1) == ["one-n"]
    path.write_text(manifest("two"))
    assert await sink.until(2) == ["two-n"]
    path.unlink()
    assert await sink.until(3) == []


async def test_a_single_file_that_is_bad_keeps_its_pod(directory, start, sink, clock, journal, settled, wait_for):
    path = directory / "only.yaml"
    path.write_text(manifest("one"))
    start(path)
    await sink.until(1)
    path.write_text("nonsense")
    await wait_for(lambda: journal._causes)
    for _ in range(2):
        await settled()
        clock.advance(PERIOD)
    await settled()
    assert len(sink.sets) == 1
    assert await journal.reported() == ["ManifestRejected"]


async def test_what_is_neither_directory_nor_file_is_an_error_and_not_a_source(
    tmp_path, start, sink, journal, wait_for
):
    path = tmp_path / "pipe"
    os.mkfifo(path)
    start(path)
    await wait_for(lambda: journal._causes)
    assert sink.sets == []
    assert "path is not a directory or file" in journal._causes[0].finding.message
