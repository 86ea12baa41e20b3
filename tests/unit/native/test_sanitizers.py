"""The native core under AddressSanitizer, UBSan and ThreadSanitizer, hammered from many threads."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

NATIVE = Path(__file__).parents[3] / "native"
TOOLS = Path(sys.executable).parent  # cmake and ninja of the virtual environment
SECONDS = "4"


def hammer(sanitizers: str, build: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{TOOLS}:{os.environ['PATH']}", "TSAN_OPTIONS": "halt_on_error=1"}
    configure = ["cmake", "-S", str(NATIVE), "-B", str(build), "-G", "Ninja", f"-DAFFIDAVIT_HAMMER={sanitizers}"]
    for command in (configure, ["cmake", "--build", str(build)]):
        built = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        assert built.returncode == 0, built.stdout + built.stderr
    run = [*_without_address_randomisation(), str(build / "hammer"), SECONDS]
    return subprocess.run(run, env=environment, capture_output=True, text=True, timeout=300)


def _without_address_randomisation() -> list[str]:
    """ThreadSanitizer of gcc 12 cannot place its shadow under 32 bits of randomisation; some containers forbid less."""
    fixed = [shutil.which("setarch") or "", "-R"]
    allowed = fixed[0] and subprocess.run([*fixed, "true"], capture_output=True).returncode == 0
    return fixed if allowed else []


@pytest.mark.slow
def test_the_core_is_clean_under_the_sanitizers_and_its_bits_do_not_depend_on_the_instruction_set(tmp_path) -> None:
    digests: dict[str, str] = {}
    for sanitizers in ("none", "address,undefined", "thread"):
        run = hammer(sanitizers, tmp_path / sanitizers.replace(",", "-"))
        assert run.returncode == 0, f"{sanitizers}:\n{run.stderr[-8000:]}"
        assert not run.stderr
        digests[sanitizers] = run.stdout.splitlines()[-1]
    # "none" runs the clones of this machine's CPU, the others plain SSE2 code.
    assert len(set(digests.values())) == 1, digests
