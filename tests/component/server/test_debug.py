"""`/debug/…`, `/flagz` and `/statusz` over real TLS."""

import asyncio
import json


async def put(kubelet, text):
    return await kubelet.get("/debug/flags/v", method="PUT", data=text)


async def test_the_verbosity_is_set(kubelet):
    assert await put(kubelet, "4") == (200, "successfully set klog.logging.verbosity to 4\n")
    assert await put(kubelet, "x") == (400, 'strconv.ParseUint: parsing "x": invalid syntax\n')
    assert (await put(kubelet, b"\xff\n" * 100))[0] == 400
    assert await kubelet.get("/debug/flags/v") == (406, "unsupported http method\n")
    assert kubelet.verbosities == [4]


async def test_one_profile_is_recorded_at_a_time(kubelet):
    async with asyncio.TaskGroup() as group:
        first = group.create_task(kubelet.get("/debug/pprof/profile?seconds=7"))
        await kubelet.profiler.asked.wait()
        status, text = await kubelet.get("/debug/pprof/profile")
        assert (status, text) == (500, "Could not enable CPU profiling: cpu profiling already in use\n")
        kubelet.profiler.goes_on.set()
    assert first.result() == (200, "7 s")
    assert await kubelet.get("/debug/pprof/profile") == (200, "30 s")
    assert await kubelet.get("/debug/pprof/profile?seconds=301") == (
        400,
        "profile duration exceeds server's WriteTimeout\n",
    )


async def test_a_client_that_goes_ends_its_profile(kubelet):
    _, writer = await kubelet.connect()
    writer.write(b"GET /debug/pprof/profile HTTP/1.1\r\nHost: n\r\n\r\n")
    await kubelet.profiler.asked.wait()
    writer.transport.abort()
    kubelet.profiler.goes_on.set()
    async with asyncio.timeout(10):
        while (await kubelet.get("/debug/pprof/profile"))[0] != 200:
            pass  # the server has not noticed yet


async def test_other_profiles(kubelet):
    assert await kubelet.get("/debug/pprof/cmdline") == (200, "klet\0run\0--v=2")
    assert await kubelet.get("/debug/pprof/symbol") == (200, "num_symbols: 1\n")
    for name in ("heap", "goroutine", "trace", "%2e%2e"):
        assert (await kubelet.get(f"/debug/pprof/{name}"))[0] == 404
    assert await kubelet.get("/debug/pprof/") == (404, "404: Page Not Found")


async def test_flags_and_status_as_text_and_json(start):
    async with start(with_gates=True) as kubelet:
        status, text = await kubelet.get("/flagz", headers={"Accept": "*/*"})
        assert status == 200
        assert text.startswith("\nkubelet flagz\nWarning: ")
        accept = "application/json;as=Statusz;v=v1alpha1;g=config.k8s.io"
        status, text = await kubelet.get("/statusz", headers={"Accept": accept})
        answer = json.loads(text)
        assert (answer["kind"], answer["apiVersion"]) == ("Statusz", "config.k8s.io/v1alpha1")
        assert (answer["paths"], answer["emulationVersion"]) == (["/configz", "/healthz"], "1.35")
        assert (await kubelet.get("/flagz", headers={"Accept": "image/png"}))[0] == 406
