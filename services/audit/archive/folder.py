"""An archive in a local folder: one read-only file an object, its date beside it.

It keeps programs of good will from erasing too early. Whoever owns the folder can erase all of it: only a store with
Object Lock, or a folder on write-once media, is out of the operator's hands.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence.durablefile import create_file, replace_file
from affidavit.services.audit.archive.objects import Copy, Kept

_DATE = ".retain-until"
_FORM = "%Y-%m-%dT%H:%M:%SZ"


class FolderStore:
    """Objects below `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @property
    def place(self) -> str:
        return str(self._root)

    def check(self) -> None:
        try:
            self._root.mkdir(parents=True, exist_ok=True, mode=0o755)
        except OSError as error:
            raise AffidavitError("INVALID_OPTION", f"the archive {self._root} is no folder: {error}") from None

    def put(self, key: str, data: bytes, retain_until: datetime) -> None:
        path = self._root / key
        if path.exists():
            message = f"{path} is there with other bytes than the log's; find out who wrote it, and move it away"
            raise AffidavitError("HASH_MISMATCH", message)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            _write_date(path, retain_until)  # first: a file never stands without its date
            create_file(path, data, 0o444)
        except OSError as error:
            raise _unavailable(self._root, error) from error

    def copies(self, key: str) -> list[Copy]:
        return [Copy(key, "", latest=True)] if (self._root / key).is_file() else []

    def read(self, copy: Copy) -> Kept:
        path = self._root / copy.key
        try:
            return Kept(path.read_bytes(), _date(path))
        except OSError as error:
            raise _unavailable(self._root, error) from error

    def extend(self, copy: Copy, retain_until: datetime) -> None:
        path = self._root / copy.key
        date = _date(path)
        if date is not None and retain_until < date:
            message = f"{path} is kept until {date.strftime(_FORM)}; a date is never moved nearer"
            raise AffidavitError("INVALID_OPTION", message)
        try:
            _write_date(path, retain_until)
        except OSError as error:
            raise _unavailable(self._root, error) from error

    def keys(self, prefix: str) -> Iterator[str]:
        if not self._root.is_dir():
            raise AffidavitError("SERVICE_UNAVAILABLE", f"the archive {self._root} is not there; is it mounted?")
        names = (str(path.relative_to(self._root)) for path in self._root.rglob("*") if path.is_file())
        yield from sorted(name for name in names if name.startswith(prefix) and not name.endswith((_DATE, ".new")))


def _write_date(path: Path, retain_until: datetime) -> None:
    replace_file(path.with_name(path.name + _DATE), f"{retain_until.strftime(_FORM)}\n".encode())


def _date(path: Path) -> datetime | None:
    """None when there is no date: nothing then speaks against erasing the file."""
    try:
        text = path.with_name(path.name + _DATE).read_text("utf-8")
        return datetime.strptime(text.strip(), _FORM).replace(tzinfo=UTC)
    except (FileNotFoundError, ValueError):
        return None


def _unavailable(root: Path, error: OSError) -> AffidavitError:
    return AffidavitError("SERVICE_UNAVAILABLE", f"the archive {root} cannot be used: {error}; is it mounted?")
