import asyncio
import os
from contextlib import aclosing, closing
from pathlib import Path

import pytest

from klet.host.errors import FileError
from klet.host.kmsg import KMSG, KernelLog

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("root"), pytest.mark.real_machine]


async def test_messages_from_now_on():
    if not os.access(KMSG, os.W_OK):
        pytest.skip("/dev/kmsg cannot be written: the container that the tests run in forbids it")
    mark = f"klet-test-{os.getpid()}"
    KMSG.write_text(f"{mark} before\n")
    with closing(KernelLog.open()) as log:
        texts = await read_until(log, mark)
    assert [text for text in texts if text.startswith(mark)] == [f"{mark} one", f"{mark} two"]


async def read_until(log, mark):
    async with asyncio.timeout(10), aclosing(log.messages()) as messages:
        texts = []
        KMSG.write_text(f"{mark} one\n")
        KMSG.write_text(f"{mark} two\n")
        while f"{mark} two" not in texts:
            message = await anext(messages)
            texts.append(message.text)
            if message.text.startswith(mark):
                assert not message.is_from_kernel
    return texts


def test_a_missing_file_is_an_error(tmp_path: Path):
    with pytest.raises(FileError, match="cannot open"):
        KernelLog.open(tmp_path / "kmsg")
