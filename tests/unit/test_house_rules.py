"""Rules of the house that no linter knows."""

import ast
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# In services: a queue or one owner instead of a lock, a condition instead of a sleep, and no pattern engine that backtracks.
FORBIDDEN = {
    "threading.Lock",
    "threading.RLock",
    "time.sleep",
    "re.compile",
    "re.match",
    "re.search",
    "re.sub",
    "re.split",
}


def python_files(*folders: str) -> list[Path]:
    return [path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))]


def names_used(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Dotted names of modules' members that a module uses, also when imported by `from`."""
    origins: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            origins |= {alias.asname or alias.name: alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            origins |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            yield f"{origins.get(node.value.id, node.value.id)}.{node.attr}", node.lineno
        elif isinstance(node, ast.Name):
            yield origins.get(node.id, node.id), node.lineno


@pytest.mark.parametrize("path", python_files("services"), ids=lambda p: str(p.relative_to(ROOT)))
def test_services_use_no_lock_no_sleep_and_no_backtracking(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    assert [f"line {line}: {name}" for name, line in names_used(tree) if name in FORBIDDEN] == []


def test_only_main_modules_read_configuration() -> None:
    readers = {
        path.relative_to(ROOT)
        for path in python_files("services")
        for name, _ in names_used(ast.parse(path.read_text("utf-8")))
        if name in ("affidavit.libs.settings.load", "affidavit.libs.rpc.run_service", "os.environ", "os.getenv")
    }
    assert {path.name for path in readers} <= {"__main__.py"}


def test_generated_code_is_not_in_git() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert [name for name in tracked if "_pb2" in name] == []


@pytest.mark.parametrize("path", sorted((ROOT / "requirements").glob("*.txt")), ids=lambda p: p.name)
def test_pins_name_no_index(path: Path) -> None:
    text = path.read_text("utf-8")
    assert "://" not in text
    assert "--index" not in text
    assert "--find-links" not in text
