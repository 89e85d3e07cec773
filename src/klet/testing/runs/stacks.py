"""Where everything stands: the stacks of all threads and of all asyncio tasks, whatever loop they belong to."""

import asyncio
import gc
import linecache
import sys
import threading
import traceback
from collections.abc import Iterator
from types import AsyncGeneratorType, CoroutineType, FrameType, GeneratorType
from typing import Any, Final

_MOST_STACKS: Final = 100
_MOST_NAMES: Final = 5
_DEEPEST: Final = 100
_WIDEST: Final = 300


def render_stacks() -> str:
    """Return the stacks of the other threads, the main one first, and of the tasks; equal ones are shown once."""
    threads = {thread.ident: thread.name for thread in threading.enumerate()}
    main, own = threading.main_thread().ident, threading.get_ident()
    now = sys._current_frames()  # noqa: SLF001  # the documented way to the stacks of all threads
    frames = sorted((item for item in now.items() if item[0] != own), key=lambda item: item[0] != main)
    of_threads = [(threads.get(ident, f"thread {ident}"), _thread_stack(frame)) for ident, frame in frames]
    of_tasks = [(task.get_name(), _task_stack(task)) for task in find_tasks()]
    return "".join((*_render_kind("thread", of_threads), *_render_kind("asyncio task", of_tasks)))


def find_tasks() -> "list[asyncio.Task[Any]]":
    """Return all tasks that are not done, by name: asyncio itself lists them for one loop only."""
    # By type: an isinstance would ask objects, such as proxies, for their class.
    tasks = [found for found in gc.get_objects() if issubclass(type(found), asyncio.Task) and not found.done()]
    return sorted(tasks, key=lambda task: (len(task.get_name()), task.get_name()))


def _render_kind(kind: str, stacks: list[tuple[str, str]]) -> Iterator[str]:
    names: dict[str, list[str]] = {}
    for name, stack in stacks:
        names.setdefault(stack, []).append(name)
    for stack, same in list(names.items())[:_MOST_STACKS]:
        more = f" and {len(same) - _MOST_NAMES} more" if len(same) > _MOST_NAMES else ""
        yield f"--- {kind} {', '.join(same[:_MOST_NAMES])}{more}\n{stack}"
    if len(names) > _MOST_STACKS:
        yield f"--- {len(names) - _MOST_STACKS} more stacks\n"


def _thread_stack(frame: FrameType) -> str:
    """Return a stack from where pytest has called the code of a test or a fixture."""
    entries = traceback.extract_stack(frame, limit=-_DEEPEST)
    last = max((place for place, entry in enumerate(entries) if _is_of_pytest(entry.filename)), default=-1)
    return "".join(traceback.StackSummary.from_list(entries[last + 1 :] or entries).format())


def _is_of_pytest(path: str) -> bool:
    return any(name in path for name in ("/_pytest/", "/pluggy/", "/pytest_asyncio/"))


def _task_stack(task: "asyncio.Task[Any]") -> str:
    """Return the whole chain of awaits; `Task.get_stack` has its first link only."""
    lines: list[str] = []
    awaited: object = task.get_coro()
    for _ in range(_DEEPEST):
        following = _next_link(awaited)
        if following is None:
            break
        frame, awaited = following
        if frame is not None:
            lines.append(_render_frame(frame))
    if awaited is not None:
        lines.append(f"  waits for {_short(awaited)}\n")
    return "".join(lines)


def _next_link(awaited: object) -> tuple[FrameType | None, object] | None:
    """Return the frame of one link and what it awaits; None at the end of the chain."""
    match awaited:
        case CoroutineType():
            return awaited.cr_frame, awaited.cr_await
        case GeneratorType():
            return awaited.gi_frame, awaited.gi_yieldfrom
        case AsyncGeneratorType():
            return awaited.ag_frame, awaited.ag_await
        case None | asyncio.Future():
            return None
        case _:
            return _hidden_link(awaited)


def _hidden_link(awaited: object) -> tuple[None, object] | None:
    """Find what the awaitables of futures, `async for` and `async with` drive: only the garbage collector sees it."""
    for referent in gc.get_referents(awaited):
        if isinstance(referent, AsyncGeneratorType | CoroutineType | GeneratorType | asyncio.Future):
            return None, referent
    return None


def _render_frame(frame: FrameType) -> str:
    code = frame.f_code
    line = linecache.getline(code.co_filename, frame.f_lineno).strip()
    return f'  File "{code.co_filename}", line {frame.f_lineno}, in {code.co_qualname}\n    {line}\n'


def _short(awaited: object) -> str:
    text = repr(awaited)
    return text if len(text) <= _WIDEST else f"{text[:_WIDEST]}…"
