"""`affidavit audit archive ls|verify`: read the archive, whether the service runs or not.

Exit codes: 0 whole, 2 wrong use, 3 the archive does not answer, 4 damaged.
"""

import json
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from affidavit.libs.evidence.note import TreeHead
from affidavit.libs.evidence.record import time_text
from affidavit.services.audit.archive.ledger import Archived, Ledger
from affidavit.services.audit.archive.places import log_verifiers
from affidavit.services.audit.archive.verify import Listed, list_archive, verify_archive
from affidavit.services.audit.backup import open_beside
from affidavit.services.audit.head import HeadFile
from affidavit.services.audit.offline import Here, Progress, Run


def main(argv: Sequence[str], run: Run) -> int:
    """The command, with the arguments after its name; its exit code."""
    work = {"ls": _list, "verify": _verify}.get(argv[0] if argv else "")
    if work is None:
        sys.stderr.write("archive: say what to do, ls or verify\n")
        return 2
    as_json = "--json" in argv
    settings = [argument for argument in argv[1:] if argument != "--json"]
    return run(settings, lambda here, progress: work(here, progress, as_json=as_json))


def _verify(here: Here, progress: Progress, *, as_json: bool) -> int:
    objects, keys = here.archive(), here.folders.keys
    known = _known(here)
    report = verify_archive(objects, lambda origin: log_verifiers(keys, origin), known, datetime.now(UTC), progress)
    sys.stdout.write((report.as_json() if as_json else report.as_text()) + "\n")
    return 4 if report.findings else 0


def _known(here: Here) -> Sequence[Archived] | None:
    """What the store remembers of the archive, as it was when it was opened; None where there is no store."""
    if not here.folders.store.exists():
        return None
    note = HeadFile(here.folders.head).read()
    size = TreeHead.unverified(note).size if note else 0
    with tempfile.TemporaryDirectory(prefix="affidavit-archive-") as beside:
        store = open_beside(here.folders.store, Path(beside), size)
        try:
            return Ledger(store).segments
        finally:
            store.close()


def _list(here: Here, _: Progress, *, as_json: bool) -> int:
    for listed in list_archive(here.archive()):
        sys.stdout.write((json.dumps(_row(listed)) if as_json else _line(listed)) + "\n")
    return 0


def _row(listed: Listed) -> dict[str, object]:
    manifest = listed.manifest
    return {
        "first": manifest.first,
        "last": manifest.last,
        "bytes": manifest.entries.size,
        "newest_time": time_text(manifest.newest_time),
        "retain_until": time_text(manifest.retain_until),
        "manifest": listed.sha256.hex(),
        "files": {file.name: file.sha256.hex() for file in manifest.files},
        "missing": list(manifest.missing),
    }


def _line(listed: Listed) -> str:
    manifest = listed.manifest
    until = manifest.retain_until.date().isoformat()
    return f"{manifest.first:>12} to {manifest.last:<12} {manifest.entries.size:>10} bytes  kept until {until}"
