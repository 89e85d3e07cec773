import asyncio
import os
from contextlib import aclosing
from pathlib import Path

import pytest

from klet.host.errors import FileError
from klet.host.kmsg import KMSG, follow_kernel_messages

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("root")]


async def test_messages_from_now_on():
    if not os.access(KMSG, os.W_OK):
        pytest.skip("/dev/kmsg cannot be written: the container that the tests run in forbids it")
    mark = f"klet-test-{os.getpid()}"
    async with asyncio.timeout(10), aclosing(follow_kernel_messages()) as messages:
        KMSG.write_text(f"{mark} before\n")
        reading = asyncio.ensure_future(anext(messages))
        await asyncio.sleep(0)
        texts = []
        KMSG.write_text(f"{mark} one\n")
        KMSG.write_text(f"{mark} two\n")
        while f"{mark} two" not in texts:
            message = await reading
            texts.append(message.text)
            if message.text.startswith(mark):
                assert not message.is_from_kernel
            reading = asyncio.ensure_future(anext(messages))
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    assert [text for text in texts if text.startswith(mark)] == [f"{mark} one", f"{mark} two"]


async def test_a_missing_file_is_an_error(tmp_path: Path):
    async with aclosing(follow_kernel_messages(tmp_path / "kmsg")) as messages:
        with pytest.raises(FileError, match="cannot open"):
            await anext(messages)
