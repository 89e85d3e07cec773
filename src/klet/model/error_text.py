"""Several errors in one line, as upstream joins them. Pure."""

from collections.abc import Iterable


def join_errors(errors: Iterable[str]) -> str:
    """Return one error as it is; several in brackets, each once."""
    each = tuple(dict.fromkeys(errors))
    return each[0] if len(each) == 1 else f"[{', '.join(each)}]"
