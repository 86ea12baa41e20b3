"""The peers' virtual environment and their runners."""

import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
VENV = ROOT / ".venv-peers"
REQUIREMENTS = ROOT / "requirements" / "peers.txt"
RUNNERS = ROOT.parent / "shared" / "peers" / "ocr"


@dataclass(frozen=True)
class PeerRun:
    """What a peer made of the files."""

    predictions: Path
    pages_per_s: float  # pages over the sum of its own seconds a file, start-up left out


def peers_python() -> Path | None:
    """The interpreter of `.venv-peers`, made on first use; None when the peers cannot be installed."""
    python = VENV / "bin" / "python"
    marker = VENV / "installed.txt"
    if marker.exists() and marker.read_text("utf-8") == REQUIREMENTS.read_text("utf-8"):
        return python
    print("installing the peers into .venv-peers …", file=sys.stderr)
    try:
        subprocess.run([sys.executable, "-m", "venv", str(VENV)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", "-r", str(REQUIREMENTS)], check=True)
    except subprocess.CalledProcessError as error:
        print(f"the peers cannot be installed: {error}", file=sys.stderr)
        return None
    marker.write_text(REQUIREMENTS.read_text("utf-8"), "utf-8")
    return python


def version(package: str) -> str | None:
    """Version of a package in `.venv-peers`; None when it is not there."""
    site = next(iter((VENV / "lib").glob("python*/site-packages")), None)
    if site is None:
        return None
    found = [d.version for d in distributions(path=[str(site)]) if d.metadata["Name"].lower() == package]
    return found[0] if found else None


def run_rapidocr(python: Path, manifest: Path, out: Path) -> PeerRun:
    """rapidocr on ONNX Runtime, its defaults, over the manifest's files."""
    command = [str(python), str(RUNNERS / "run_rapidocr.py"), str(out), "--manifest", str(manifest)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    lines = [json.loads(line) for line in out.read_text("utf-8").splitlines()]
    return PeerRun(out, sum(line["pages"] for line in lines) / sum(line["seconds"] for line in lines))


def score(predictions: Path, manifest: Path) -> dict[str, dict[str, float]]:
    """The shared scorer's figures by kind, and TOTAL: cer, wer, f1."""
    with tempfile.NamedTemporaryFile(suffix=".json") as figures:
        command = [sys.executable, str(RUNNERS / "score.py"), str(predictions), "--manifest", str(manifest)]
        subprocess.run([*command, "--json", figures.name], check=True, stdout=subprocess.DEVNULL)
        (only,) = json.loads(Path(figures.name).read_text("utf-8")).values()
    return only["kinds"]
