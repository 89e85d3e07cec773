"""Which lines the log has, and on which of its two streams."""

import json
import logging

import pytest

from klet.agent_log.start import LogSettings, start_logging
from klet.agent_log.vmodule import VModuleRule
from klet.model.verbosity import REQUESTS, TRACE


class Kept:
    """A stream in memory."""

    def __init__(self):
        self.text = ""
        self.flushes = 0
        self.is_finished = False

    def write(self, line):
        self.text += line.decode()

    def flush(self):
        self.flushes += 1

    def finish(self):
        self.is_finished = True


@pytest.fixture
def loggers():
    """The loggers as they were, after the test."""
    root, own = logging.getLogger(), logging.getLogger("klet")
    before = (root.handlers[:], root.level, own.level)
    yield
    for handler in root.handlers:
        handler.close()
    root.handlers[:] = before[0]
    root.setLevel(before[1])
    own.setLevel(before[2])


@pytest.fixture
def start(loggers):
    def start(**settings):
        info, errors = Kept(), Kept()
        handler = start_logging(LogSettings(**settings), streams=(info, errors))
        return info, errors, handler

    return start


@pytest.mark.parametrize(("verbosity", "lines"), [(0, 1), (3, 1), (4, 2), (5, 3), (6, 4), (10, 4)])
def test_each_verbosity_shows_more(start, verbosity, lines):
    info, _, _ = start(verbosity=verbosity)
    logger = logging.getLogger("klet.test")
    logger.log(REQUESTS, "Response")
    logger.log(TRACE, "Event")
    logger.debug("Looked")
    logger.info("Changed")
    logging.getLogger("someone.else").info("Chatter")
    assert len(info.text.splitlines()) == lines


def test_the_verbosity_changes_while_the_agent_runs(start):
    info, _, handler = start(vmodule=(VModuleRule("transport", 6),))
    logger, module = logging.getLogger("klet.test"), logging.getLogger("klet.kube.transport")
    for verbosity in (0, 5, 0):
        handler.set_verbosity(verbosity)
        logger.log(TRACE, "Event at %d", verbosity)
        module.log(REQUESTS, "Response at %d", verbosity)
    assert [line.rpartition("] ")[2] for line in info.text.splitlines()] == [
        '"Response at 0"',
        '"Event at 5"',
        '"Response at 5"',
        '"Response at 0"',
    ]


def test_one_module_may_say_more(start):
    info, _, _ = start(vmodule=(VModuleRule("transport", 6),))
    for module in ("klet.kube.transport", "klet.cri.connection"):
        logging.getLogger(module).log(REQUESTS, "Response")
    assert info.text.count("Response") == 1


@pytest.mark.parametrize(
    ("as_json", "on_stdout"),
    [
        pytest.param(False, ["debug", "info"], id="text: as klog, lines that begin with I"),
        pytest.param(True, ["debug", "info", "warning"], id="JSON: all but errors, as upstream's logger"),
    ],
)
def test_information_and_errors_go_apart(start, as_json, on_stdout):
    info, errors, _ = start(as_json=as_json, verbosity=4, is_split=True)
    levels = ["debug", "info", "warning", "error", "critical"]
    for level in levels:
        logging.getLogger("klet.test").log(getattr(logging, level.upper()), level)
    assert [level for level in levels if f'"{level}"' in info.text] == on_stdout
    assert [level for level in levels if f'"{level}"' in errors.text] == levels[len(on_stdout) :]


def test_a_line_before_a_crash_lets_nothing_be_kept_back(start):
    info, _, _ = start()
    logging.getLogger("klet.test").error("Trouble")
    assert info.flushes == 0
    logging.getLogger("klet.test").critical("The end")
    assert info.flushes == 1


def test_the_end_of_the_log_finishes_both_streams(start):
    info, errors, handler = start()
    handler.close()
    assert info.is_finished
    assert errors.is_finished


def test_logs_as_json(start):
    info, _, _ = start(as_json=True)
    logging.getLogger("someone.else").warning("Trouble", extra={"node": "n"})
    line = json.loads(info.text)
    assert (line["msg"], line["node"]) == ("Trouble", "n")


def test_starting_again_does_not_double_the_lines(start):
    start()
    info, _, _ = start()
    logging.getLogger("klet.test").info("Once")
    assert len(info.text.splitlines()) == 1


def test_a_text_that_is_no_unicode_is_shown_all_the_same(start):
    info, _, _ = start()
    logging.getLogger("klet.test").info("Found", extra={"file": "\udcff"})
    assert "udcff" in info.text
