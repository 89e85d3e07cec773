"""Errors of pod sources.

SourceError              the file, directory or URL cannot be read
└── ManifestError        it can, and its content is no pod that could run
"""

from typing import Final

from msgspec import Struct

from klet.errors import KletError
from klet.model.foreign_text import LONGEST_WORD, shorten

MOST_PROBLEMS: Final = 50
"""So many problems of one manifest are reported; the others show when those are fixed."""


class SourceError(KletError):
    """A source that cannot be read now."""


class Problem(Struct, frozen=True):
    """One broken rule; the field is empty when it concerns the whole text."""

    field: str
    rule: str

    def __str__(self) -> str:
        return f"{self.field}: {self.rule}" if self.field else self.rule


class ManifestError(SourceError):
    """A manifest that is not a pod: the file or URL, the document in it, and every rule that it breaks."""

    def __init__(self, *, location: str, problems: tuple[Problem, ...], document: int = 1) -> None:
        texts = tuple(dict.fromkeys(shorten(str(problem), LONGEST_WORD) for problem in problems[:MOST_PROBLEMS]))
        shown = f"[{', '.join(texts)}]" if len(texts) > 1 else "".join(texts)
        super().__init__(f"{location}: document {document}: {shown}")
        self.location = location
        self.document = document
        self.problems = problems
