"""The work of scripts/upstream-settings."""

import json
import sys
from pathlib import Path

from klet.testing.control_plane.build import run_program
from klet.testing.control_plane.programs import ProgramMissing, chosen_release

HERE = Path(__file__).resolve().parent
DATA = HERE.parent / "tests" / "data" / "upstream_settings.json"


def main(arguments: list[str]) -> int:
    if arguments:
        print("usage: scripts/upstream-settings", file=sys.stderr)
        return 2
    try:
        found = json.loads(run_program(HERE / "upstream_settings.go"))
    except ProgramMissing as error:
        print(f"scripts/upstream-settings: {error}", file=sys.stderr)
        return 1
    DATA.write_text(render(found))
    print(", ".join(f"{len(rows)} {title}" for title, rows in found.items()), f"of {chosen_release()} in {DATA}")
    return 0


def render(found: dict[str, dict[str, object]]) -> str:
    """One line for each setting, so that a new release shows as the lines that changed."""
    sections = "".join(
        f',\n "{title}": {{\n'
        + ",\n".join(f'  "{name}": {json.dumps(row, sort_keys=True)}' for name, row in sorted(rows.items()))
        + "\n }"
        for title, rows in sorted(found.items())
    )
    return f'{{\n "release": "{chosen_release()}"{sections}\n}}\n'


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
