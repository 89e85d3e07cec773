"""`$(NAME)` in environment values, commands and arguments (upstream: third_party/forked/golang/expansion)."""

from collections.abc import Iterator, Mapping


def expand(text: str, values: Mapping[str, str]) -> str:
    """Replace `$(NAME)` by its value; `$$` is a plain dollar, and an unknown name stays as written."""
    pieces = _pieces(text)
    return "".join(values.get(piece, f"$({piece})") if is_name else piece for is_name, piece in pieces)


def names_in(text: str) -> frozenset[str]:
    """The names that a text refers to."""
    return frozenset(piece for is_name, piece in _pieces(text) if is_name)


def _pieces(text: str) -> Iterator[tuple[bool, str]]:
    """The text in pieces, each with whether it is a name to be replaced."""
    index = 0
    while index < len(text):
        if text[index] != "$" or index + 1 == len(text):
            yield False, text[index]
            index += 1
            continue
        follower = text[index + 1]
        end = text.find(")", index + 2)
        if follower == "$":
            yield False, "$"
            index += 2
        elif follower == "(" and end >= 0:
            yield True, text[index + 2 : end]
            index = end + 1
        else:
            yield False, text[index : index + 2]
            index += 2
