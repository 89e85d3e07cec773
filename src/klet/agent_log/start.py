"""Sets up the agent's log: which lines, in which form, on which stream."""

import logging
import sys
from collections.abc import Callable

from msgspec import Struct

from klet.agent_log.format import FloodFilter, JsonFormatter, TextFormatter
from klet.agent_log.output import BufferedStream, DescriptorStream, LogOutput
from klet.agent_log.vmodule import ModuleFilter, VModuleRule
from klet.model.verbosity import level_of


class LogSettings(Struct, frozen=True, kw_only=True):
    """What `logging` of a KubeletConfiguration asks for."""

    as_json: bool = False
    verbosity: int = 0
    vmodule: tuple[VModuleRule, ...] = ()
    is_split: bool = False
    """Information goes to stdout, the rest to stderr; otherwise all goes to stderr."""
    info_buffer: int = 0
    """Bytes of information that may be kept back, if it has a stream of its own."""
    flush_seconds: float = 5.0


class LogHandler(logging.Handler):
    """Writes each record to one of two streams."""

    def __init__(
        self,
        *,
        info: LogOutput,
        errors: LogOutput,
        is_info: Callable[[logging.LogRecord], bool],
        modules: ModuleFilter,
    ) -> None:
        super().__init__()
        self.addFilter(modules)
        self._modules = modules
        self._info = info
        self._errors = errors
        self._is_info = is_info

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = f"{self.format(record)}\n".encode("utf-8", "backslashreplace")
        except Exception:  # noqa: BLE001 - logging's own rule: a record that cannot be shown ends nothing
            self.handleError(record)
            return
        if self._is_info(record):
            self._info.write(line)
        else:
            self._errors.write(line)
        if record.levelno >= logging.CRITICAL:
            self.flush()

    def set_verbosity(self, verbosity: int) -> None:
        """Show more or fewer lines from now on. What `--vmodule` says of a module stays."""
        self._modules.set_verbosity(verbosity)
        logging.getLogger("klet").setLevel(level_of(self._modules.highest))

    def flush(self) -> None:
        self._info.flush()
        self._errors.flush()

    def close(self) -> None:
        """Write what is kept back. Python calls it at every end of the process but a kill."""
        self._info.finish()
        self._errors.finish()
        super().close()


def start_logging(settings: LogSettings, *, streams: tuple[LogOutput, LogOutput] | None = None) -> LogHandler:
    """Send klet's lines, and the warnings of libraries, to the streams: that for information and that for the rest."""
    formatter = JsonFormatter() if settings.as_json else TextFormatter()
    info, errors = streams or open_streams(settings, formatter)
    modules = ModuleFilter(settings.verbosity, settings.vmodule)
    is_info = _is_json_info if settings.as_json else _is_text_info
    handler = LogHandler(info=info, errors=errors, is_info=is_info, modules=modules)
    handler.setFormatter(formatter)
    handler.addFilter(FloodFilter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    handler.set_verbosity(settings.verbosity)
    return handler


def open_streams(settings: LogSettings, formatter: logging.Formatter) -> tuple[LogOutput, LogOutput]:
    """Return the stream for information and that for the rest, which may be the same."""

    def describe_loss(count: int) -> bytes:
        text = "Log lines were dropped: nobody read them"
        record = logging.LogRecord(__name__, logging.WARNING, __file__, 0, text, (), None)
        record.dropped = count
        return f"{formatter.format(record)}\n".encode()

    errors = DescriptorStream(sys.stderr.fileno(), describe_loss=describe_loss)
    if not settings.is_split:
        return errors, errors
    # Whatever was printed before belongs before the first line.
    sys.stdout.flush()
    info = DescriptorStream(sys.stdout.fileno(), describe_loss=describe_loss)
    if settings.info_buffer <= 0:
        return info, errors
    buffered = BufferedStream(info, size=settings.info_buffer, flush_every=settings.flush_seconds)
    buffered.start()
    return buffered, errors


def _is_text_info(record: logging.LogRecord) -> bool:
    """As klog's router: lines that begin with `I`."""
    return record.levelno < logging.WARNING


def _is_json_info(record: logging.LogRecord) -> bool:
    """As upstream's JSON logger, which knows no warnings: all but errors."""
    return record.levelno < logging.ERROR
