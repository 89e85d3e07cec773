"""The work of scripts/generate-wire."""

import re
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

SOURCE = Path(__file__).resolve().parent.parent / "src"
WIRE = SOURCE / "klet" / "wire"
# A newer compiler that differs only in the version it stamps makes no difference worth failing for.
VERSION = re.compile(r"# Protobuf Python Version: \S+|(?<=Domain\.PUBLIC,)\s+\d+,\s+\d+,\s+\d+,")


def main(arguments: list[str]) -> int:
    if arguments == ["--check"]:
        with tempfile.TemporaryDirectory() as scratch:
            compile_into(Path(scratch))
            stale = sorted(differences(Path(scratch) / "klet" / "wire"))
        for name in stale:
            print(f"src/klet/wire/{name}: not what its .proto file gives; run scripts/generate-wire", file=sys.stderr)
        return 1 if stale else 0
    if arguments:
        print("usage: scripts/generate-wire [--check]", file=sys.stderr)
        return 2
    for module in WIRE.glob("*_pb2.py*"):
        module.unlink()
    compile_into(SOURCE)
    return 0


def compile_into(directory: Path) -> None:
    files = sorted(str(path.relative_to(SOURCE)) for path in WIRE.glob("*.proto"))
    includes = [f"-I{SOURCE}", f"-I{Path(protoc.__file__).parent / '_proto'}"]
    if protoc.main(["protoc", *includes, f"--python_out={directory}", f"--pyi_out={directory}", *files]):
        raise SystemExit("scripts/generate-wire: the compiler refused the .proto files (see above)")


def differences(fresh: Path) -> set[str]:
    names = {path.name for folder in (fresh, WIRE) for path in folder.glob("*_pb2.py*")}
    return {name for name in names if normalized(fresh / name) != normalized(WIRE / name)}


def normalized(path: Path) -> str | None:
    return VERSION.sub("", path.read_text()) if path.exists() else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
