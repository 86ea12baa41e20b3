"""Generate Python stubs (messages, gRPC, type hints) for every proto under a root.

usage: generate_stubs.py PROTO_ROOT OUT_DIR
"""

import sys
from importlib.resources import files
from pathlib import Path

from grpc_tools import protoc


def main(root: Path, out: Path) -> int:
    protos = sorted(str(p.relative_to(root)) for p in root.rglob("*.proto"))
    well_known = str(files("grpc_tools") / "_proto")
    code = protoc.main(
        ["protoc", f"-I{root}", f"-I{well_known}"]
        + [f"--{kind}_out={out}" for kind in ("python", "pyi", "grpc_python")]
        + protos
    )
    for folder in {p.parent for p in out.rglob("*.py")}:
        (folder / "__init__.py").touch()
    return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
