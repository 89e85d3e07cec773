"""The work of scripts/generate-endpoints."""

import sys
from pathlib import Path

from klet.testing.endpoint_docs import write_tables

PAGE = Path(__file__).resolve().parent.parent / "docs" / "kubelet-api.md"


def main(arguments: list[str]) -> int:
    if arguments not in ([], ["--check"]):
        print("usage: scripts/generate-endpoints [--check]", file=sys.stderr)
        return 2
    text = PAGE.read_text()
    fresh = write_tables(text)
    if not arguments:
        PAGE.write_text(fresh)
    elif fresh != text:
        print("docs/kubelet-api.md: not what the endpoints give; run scripts/generate-endpoints", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
