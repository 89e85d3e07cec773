"""How deep objects may be: what is stored must be read, copied and sent again by functions that call themselves."""

from typing import Any, Final

DEEPEST: Final = 200


def is_too_deep(data: Any) -> bool:
    """Look without calling itself, so that it copes with what it is to refuse."""
    layer = [data]
    for _ in range(DEEPEST):
        layer = [
            below
            for each in layer
            if isinstance(each, dict | list)
            for below in (each.values() if isinstance(each, dict) else each)
        ]
        if not layer:
            return False
    return True
