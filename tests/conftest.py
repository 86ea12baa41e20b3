"""What all tests share: the list of allowed skips, and where the shared data is."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
ALLOWED_SKIPS = Path(__file__).with_name("allowed_skips.txt")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real documents and their right answers, beside the repository."""
    folder = SHARED / "data"
    assert folder.is_dir(), f"{folder} is missing: tests read real documents there"
    return folder


def allowed_skips() -> dict[str, str]:
    """Test id (or its beginning) to the reason why it may be skipped."""
    lines = [line.strip() for line in ALLOWED_SKIPS.read_text("utf-8").splitlines()]
    pairs = [line.partition(" # ") for line in lines if line and not line.startswith("#")]
    return {test.strip(): reason.strip() for test, _, reason in pairs}


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A skip that nobody allowed is a failure: a test that does not run shows nothing."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    allowed = allowed_skips()
    unknown = sorted({r.nodeid for r in skipped if not any(r.nodeid.startswith(test) for test in allowed)})
    if unknown and exitstatus == pytest.ExitCode.OK:
        reporter.write_line("skipped without a reason in tests/allowed_skips.txt: " + ", ".join(unknown), red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
