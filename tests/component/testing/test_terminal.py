"""A program on a terminal: what it shows, what is typed, and the size."""

import asyncio

import pytest

from klet.testing.terminal import run_on_terminal


async def test_the_size_reaches_the_program_and_changes_under_it():
    script = "trap 'stty size' WINCH; stty size; while true; do sleep 0.05; done"
    async with asyncio.timeout(30), run_on_terminal(("sh", "-c", script), rows=20, columns=70) as terminal:
        await terminal.until("20 70")
        terminal.resize(rows=21, columns=71)
        await terminal.until("21 71")


async def test_what_is_typed_is_read_and_the_exit_code_is_the_programs():
    script = 'read line; echo "heard $line"; exit 3'
    async with asyncio.timeout(30), run_on_terminal(("sh", "-c", script)) as terminal:
        terminal.type("word\r")
        await terminal.until("heard word")
        assert await terminal.ended() == 3


async def test_the_last_words_of_a_program_are_not_lost():
    async with asyncio.timeout(30), run_on_terminal(("sh", "-c", "echo last words")) as terminal:
        await terminal.ended()
        await terminal.until("last words")
        with pytest.raises(EOFError, match="before 'more' was seen"):
            await terminal.until("more")
