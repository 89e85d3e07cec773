"""`$(NAME)` in environment values, commands and arguments (upstream: third_party/forked/golang/expansion)."""

from collections.abc import Mapping


def expand(text: str, values: Mapping[str, str]) -> str:
    """Replace `$(NAME)` by its value; `$$` is a plain dollar, and an unknown name stays as written."""
    parts: list[str] = []
    index = 0
    while index < len(text):
        if text[index] != "$" or index + 1 == len(text):
            parts.append(text[index])
            index += 1
            continue
        follower = text[index + 1]
        end = text.find(")", index + 2)
        if follower == "$":
            parts.append("$")
            index += 2
        elif follower == "(" and end >= 0:
            name = text[index + 2 : end]
            parts.append(values.get(name, f"$({name})"))
            index = end + 1
        else:
            parts.append(text[index : index + 2])
            index += 2
    return "".join(parts)
