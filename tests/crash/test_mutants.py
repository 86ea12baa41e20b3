"""Each planted fault is noticed by the tests that its list names; without it they pass."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.crash.mutants import MUTANTS, Mutant

FOLDERS = ("libs", "services", "tools")
# The editable install's finder comes before the path: without it, the copy is found there, and generated code where it is
# installed.
SITE = """
import sys
sys.meta_path[:] = [f for f in sys.meta_path if not type(f).__module__.startswith("_editable")]
"""
NOTICED = 1  # pytest's exit code for tests that ran and failed; not for tests that do not exist


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder to put first on the import path: a copy of the source."""
    overlay = tmp_path_factory.mktemp("overlay")
    for folder in FOLDERS:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, overlay / "affidavit" / folder, ignore=ignored)
    (overlay / "sitecustomize.py").write_text(SITE)
    return overlay


def run(copy: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    # No byte code: a mutant of the same length in the same second would be taken for what it was made from.
    environment = {**os.environ, "PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=300)


def run_tests(copy: Path, *tests: str) -> subprocess.CompletedProcess[str]:
    return run(copy, "pytest", "-q", "--tb=line", *tests)


@pytest.mark.slow
def test_without_a_planted_fault_all_named_tests_pass_on_the_copy(copy: Path) -> None:
    where = run(copy, "affidavit.services.audit", "--help")
    assert where.returncode in (0, 2), where.stderr
    code = "import affidavit.services.audit.log as m, affidavit.libs.evidence.note as n; print(m.__file__, n.__file__)"
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(copy)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert all(path.startswith(str(copy)) for path in found.stdout.split()), found.stdout
    named = sorted({test for mutant in MUTANTS for test in mutant.tests})
    passed = run_tests(copy, *named)
    assert passed.returncode == 0, passed.stdout[-3000:]


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_planted_fault_is_noticed(copy: Path, mutant: Mutant) -> None:
    path = copy / "affidavit" / mutant.file
    source = path.read_text("utf-8")
    assert source.count(mutant.old) == 1, f"{mutant.file} has changed: say anew where {mutant.name!r} is planted"
    path.write_text(source.replace(mutant.old, mutant.new), "utf-8")
    try:
        for test in mutant.tests:
            noticed = run_tests(copy, "-x", test)
            assert noticed.returncode == NOTICED, f"{test} does not notice: {noticed.stdout[-2000:]}{noticed.stderr}"
    finally:
        path.write_text(source, "utf-8")
