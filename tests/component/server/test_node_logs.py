"""`/logs/` and node log queries over real TLS, on a log directory that somebody else may write to."""

import asyncio
import gzip
import os
import socket
from datetime import timedelta

import aiohttp
import pytest

QUERIES = {"answers_queries": True}
PROGRAM = "#!/bin/sh\n"


@pytest.fixture
def journal(tmp_path):
    """Puts a journalctl on the node: `journal("echo …")` runs for each question but that for the units."""

    def make(script, units="kubelet.service"):
        program = tmp_path / "bin" / "journalctl"
        asked = tmp_path / "asked"
        program.write_text(
            f'{PROGRAM}if [ "$1" = --field ]; then echo "{units}"; exit 0; fi\n'
            f'for each in "$@"; do printf "%s\\n" "$each"; done >{asked}\n{script}\n'
        )
        program.chmod(0o755)
        return asked

    return make


async def fetch(kubelet, path, **headers):
    url = aiohttp.client.URL(f"https://127.0.0.1:{kubelet.port}{path}", encoded=True)
    async with kubelet.session() as session, session.get(url, headers=headers, allow_redirects=False) as answer:
        return answer.status, await answer.read(), answer.headers


async def test_files_and_directories_are_shown_as_go_shows_them(kubelet):
    logs = kubelet.node_logs
    (logs / "pods").mkdir()
    (logs / "pods" / "a?b<c>&'d\".log").write_text("x")
    (logs / "pods" / "evil:e").mkdir()
    (logs / "\udcff").write_text("bytes")
    status, body, headers = await fetch(kubelet, "/logs/pods/")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert body.decode() == (
        '<!doctype html>\n<meta name="viewport" content="width=device-width">\n<pre>\n'
        '<a href="a%3Fb%3Cc%3E&%27d%22.log">a?b&lt;c&gt;&amp;&#39;d&#34;.log</a>\n'
        '<a href="./evil:e/">evil:e/</a>\n</pre>\n'
    )
    status, body, headers = await fetch(kubelet, "/logs/messages")
    assert (status, body) == (200, b"said by the node\n")
    assert headers["Content-Type"] == "text/plain; charset=utf-8"
    assert (headers["Content-Length"], headers["Accept-Ranges"]) == ("17", "bytes")
    assert "sandbox" in headers["Content-Security-Policy"]
    assert (await fetch(kubelet, "/logs/%FF"))[:2] == (200, b"bytes")


@pytest.mark.parametrize(
    ("path", "to"),
    [
        ("/logs/pods", "pods/"),
        ("/logs/messages/?a=b", "../messages?a=b"),
        ("/logs/pods/index.html", "./"),
        ("/logs/index.html", "./"),
        ("/logs/a%0d%0aSet-Cookie:x", "./a%0D%0ASet-Cookie:x/"),
    ],
)
async def test_redirects(kubelet, path, to):
    (kubelet.node_logs / "pods").mkdir()
    (kubelet.node_logs / "a\r\nSet-Cookie:x").mkdir()
    status, _, headers = await fetch(kubelet, path)
    assert (status, headers["Location"], headers.get("Set-Cookie")) == (301, to, None)


async def test_an_index_is_shown_in_place_of_the_listing(kubelet):
    (kubelet.node_logs / "index.html").write_text("<p>mine")
    status, body, headers = await fetch(kubelet, "/logs/")
    assert (status, body, headers["Content-Type"]) == (200, b"<p>mine", "text/html; charset=utf-8")


async def test_ranges_and_conditions(kubelet):
    assert (await fetch(kubelet, "/logs/messages", Range="bytes=5-6"))[:2] == (206, b"by")
    status, body, headers = await fetch(kubelet, "/logs/messages", Range="bytes=0-3,-5")
    assert status == 206
    boundary = headers["Content-Type"].partition("boundary=")[2]
    assert body.count(boundary.encode()) == 3
    assert b"\r\n\r\nsaid\r\n" in body
    assert b"\r\n\r\nnode\n\r\n" in body
    status, _, headers = await fetch(kubelet, "/logs/messages", Range="bytes=99-")
    assert (status, headers["Content-Range"]) == (416, "bytes */17")
    _, _, headers = await fetch(kubelet, "/logs/messages")
    same = headers["Last-Modified"]
    assert (await fetch(kubelet, "/logs/messages", **{"If-Modified-Since": same}))[:2] == (304, b"")
    assert (await fetch(kubelet, "/logs/messages", **{"If-Match": '"x"'}))[0] == 412


async def test_links_work_below_the_directory_and_lead_nowhere_else(kubelet, tmp_path):
    logs = kubelet.node_logs
    (tmp_path / "secret").write_text("flag of the host")
    (logs / "pods" / "p" / "main").mkdir(parents=True)
    (logs / "pods" / "p" / "main" / "0.log").write_text("of a pod")
    (logs / "containers").mkdir()
    (logs / "containers" / "p.log").symlink_to(logs / "pods" / "p" / "main" / "0.log")
    (logs / "containers" / "relative.log").symlink_to("../pods/p/main/0.log")
    assert (await fetch(kubelet, "/logs/containers/p.log"))[:2] == (200, b"of a pod")
    assert (await fetch(kubelet, "/logs/containers/relative.log"))[:2] == (200, b"of a pod")
    for name, target in (("a", tmp_path / "secret"), ("b", "../secret"), ("c", "/proc/self/environ"), ("d", "d")):
        (logs / name).symlink_to(target)
        assert (await fetch(kubelet, f"/logs/{name}"))[:2] == (403, b"403 Forbidden\n"), name
    (logs / "up").symlink_to("..")
    assert (await fetch(kubelet, "/logs/up/secret"))[0] == 403
    (logs / "index.html").symlink_to(tmp_path / "secret")
    assert b"flag" not in (await fetch(kubelet, "/logs/"))[1]


@pytest.mark.parametrize(
    "path",
    ["../secret", "%2e%2e/secret", "..%2fsecret", "x/../../secret", "%00", "a%00b", "no/such", "messages/x", "x" * 300],
)
async def test_there_is_nothing_at_other_paths(kubelet, tmp_path, path):
    (tmp_path / "secret").write_text("flag of the host")
    reader, writer = await kubelet.connect()
    writer.write(f"GET /logs/{path} HTTP/1.1\r\nHost: n\r\nConnection: close\r\n\r\n".encode())
    said = await reader.read()
    writer.close()
    assert said.startswith(b"HTTP/1.1 404")
    assert b"flag" not in said


async def test_pipes_sockets_and_devices_are_refused_at_once(kubelet):
    logs = kubelet.node_logs
    os.mkfifo(logs / "pipe")
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(logs / "socket"))
        if os.geteuid() == 0:
            os.mknod(logs / "device", 0o20666, os.makedev(1, 5))
        for name in ("pipe", "socket", "device"):
            if (logs / name).exists():
                assert (await fetch(kubelet, f"/logs/{name}"))[:2] == (403, b"403 Forbidden\n")


@pytest.mark.parametrize("modified", [-(2**40), -1, 0, 2**40])
async def test_times_that_no_calendar_has_are_not_shown(kubelet, modified):
    os.utime(kubelet.node_logs / "messages", (modified, modified))
    status, body, _ = await fetch(kubelet, "/logs/messages", **{"If-Modified-Since": "Wed, 21 Oct 2015 07:28:00 GMT"})
    assert (status, body) in {(200, b"said by the node\n"), (304, b"")}


async def test_a_directory_of_many_entries_is_listed_whole(kubelet):
    (kubelet.node_logs / "many").mkdir()
    for number in range(5000):
        (kubelet.node_logs / "many" / f"{number:05}").touch()
    status, body, _ = await fetch(kubelet, "/logs/many/")
    assert status == 200
    assert (body.count(b"<a href"), body.endswith(b"</pre>\n")) == (5000, True)


async def test_a_file_that_shrinks_ends_the_connection(kubelet):
    file = kubelet.node_logs / "large"
    file.write_bytes(bytes(64 << 20))
    reader, writer = await kubelet.connect()
    writer.write(b"GET /logs/large HTTP/1.1\r\nHost: n\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    os.truncate(file, 0)
    got = 0
    while piece := await reader.read(1 << 20):
        got += len(piece)
    writer.close()
    assert got < 64 << 20


async def test_without_the_gate_a_query_is_no_query(kubelet):
    assert (await fetch(kubelet, "/logs/?query=kubelet"))[0] == 200
    assert (await fetch(kubelet, "/logs/messages?query=kubelet&boot=x"))[:2] == (200, b"said by the node\n")


async def test_services_are_asked_of_the_journal_with_one_argument_for_each_option(start, journal):
    async with start(**QUERIES) as kubelet:
        asked = journal("echo of the journal; echo an error >&2")
        path = "/logs/?query=kubelet&sinceTime=2026-01-02T03:04:05%2B02:00&tailLines=7&pattern=$(id)%20;x&boot=-1"
        status, body, headers = await fetch(kubelet, path)
    assert (status, body) == (200, b"of the journal\nan error\n")
    assert headers["Content-Type"] == "text/plain;charset=UTF-8"
    assert asked.read_text().splitlines() == [
        "--utc",
        "--no-pager",
        "--output=short-precise",
        "--since=2026-01-02 01:04:05 UTC",
        "--pager-end",
        "--lines=7",
        "--unit=kubelet",
        "--grep=$(id) ;x",
        "--boot",
        "-1",
    ]


async def test_only_a_client_that_wants_exactly_gzip_gets_it(start, journal):
    async with start(**QUERIES) as kubelet:
        journal("echo of the journal")
        _, writer = connection = await kubelet.connect()
        request = "GET /logs/?query=kubelet HTTP/1.1\r\nHost: n\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n"
        writer.write(request.encode())
        said = await connection[0].read()
        writer.close()
        async with (
            kubelet.session(auto_decompress=False) as session,
            session.get("/logs/?query=kubelet", headers={"Accept-Encoding": "gzip"}) as answer,
        ):
            assert answer.headers["Content-Encoding"] == "gzip"
            assert gzip.decompress(await answer.read()) == b"of the journal\n"
        _, body, headers = await fetch(kubelet, "/logs/?query=kubelet", **{"Accept-Encoding": "gzip, deflate"})
    assert b"Content-Encoding: gzip" in said
    assert (body, headers.get("Content-Encoding")) == (b"of the journal\n", None)


async def test_services_without_lines_in_the_journal_have_files(start, journal):
    async with start(**QUERIES) as kubelet:
        journal("echo never")
        logs = kubelet.node_logs
        (logs / "a.log").write_text("of a\n")
        (logs / "b").mkdir()
        (logs / "b" / "b.log").write_text("of b\n")
        (logs / "c").symlink_to("/etc/passwd")
        status, body, _ = await fetch(kubelet, "/logs/?query=a&query=b&query=c&query=d")
        assert (status, body) == (200, b"of a\nof b\n\nerror getting log for c\n\nlog not found for d\n")
        (kubelet.programs / "journalctl").unlink()
        _, body, _ = await fetch(kubelet, "/logs/?query=messages&tailLines=1")
    assert b"options present and query resolved to log files for [messages]" in body


async def test_a_file_is_asked_for_by_a_slash(start):
    async with start(**QUERIES) as kubelet:
        assert (await fetch(kubelet, "/logs/?query=/messages"))[:2] == (200, b"said by the node\n")
        for file in ("/../secret", "../secret"):
            status, text, _ = await fetch(kubelet, f"/logs/?query={file}")
            assert (status, text) == (406, f'query: Invalid value: ["{file}"]: path escapes from parent\n'.encode())
        missing = {
            "/no/such": "no such file or directory",
            "messages/x": "not a directory",
            "\\": "no such file or directory",
            f"/{'x' * 300}": "file name too long",
        }
        for file, problem in missing.items():
            status, text, _ = await fetch(kubelet, f"/logs/?query={file}")
            assert (status, text[-len(problem) - 3 :]) == (406, f": {problem}\n".encode())
        shown = f'query: Invalid value: ["/no/such"]: stat {kubelet.node_logs}/no/such: no such file or directory\n'
        assert (await fetch(kubelet, "/logs/?query=/no/such"))[1] == shown.encode()
        assert (await fetch(kubelet, "/logs/messages?query=kubelet"))[:2] == (406, b"path not allowed in query mode\n")


async def test_a_journal_without_end_is_cut_off_at_the_deadline(start, journal, tmp_path):
    async with start(**QUERIES, query_deadline=timedelta(seconds=1)) as kubelet:
        journal(f"echo $$ >{tmp_path}/pid; echo begun; exec sleep 1000")
        assert (await fetch(kubelet, "/logs/?query=kubelet"))[:2] == (200, b"begun\n")
        with pytest.raises(ProcessLookupError):
            os.kill(int((tmp_path / "pid").read_text()), 0)


async def test_a_client_that_goes_ends_the_program_and_frees_its_place(start, journal, tmp_path):
    async with start(**QUERIES) as kubelet:
        journal(f"echo $$ >{tmp_path}/pid; echo begun; exec sleep 1000")
        connections = [await kubelet.connect() for _ in range(4)]
        for reader, writer in connections:
            writer.write(b"GET /logs/?query=kubelet HTTP/1.1\r\nHost: n\r\n\r\n")
            await reader.readuntil(b"begun\n")
        status, _, headers = await fetch(kubelet, "/logs/?query=kubelet")
        assert (status, headers["Retry-After"]) == (429, "1")
        process = os.pidfd_open(int((tmp_path / "pid").read_text()))
        ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(process, ended.set)
        for _, writer in connections:
            writer.transport.abort()
        try:
            await asyncio.wait_for(ended.wait(), 10)
        finally:
            asyncio.get_running_loop().remove_reader(process)
            os.close(process)
        journal("echo again")
        async with asyncio.timeout(10):
            while (await fetch(kubelet, "/logs/?query=kubelet"))[1] != b"again\n":
                pass  # the last of the four programs is still being reaped
