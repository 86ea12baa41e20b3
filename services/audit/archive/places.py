"""Which object store a setting means."""

from pathlib import Path

from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence.keys import KeyFileError
from affidavit.libs.evidence.logkeys import LogKeys
from affidavit.libs.evidence.note import Verifier
from affidavit.services.audit.archive.folder import FolderStore
from affidavit.services.audit.archive.objects import ObjectStore
from affidavit.services.audit.archive.s3 import S3Store

_SCHEME = "s3://"


def open_archive(place: str, endpoint: str) -> ObjectStore:
    """The archive at `place`: a folder's path, or s3://bucket/prefix, at `endpoint` where it is not Amazon's.

    Raises:
        AffidavitError: INVALID_OPTION: it is neither.
    """
    if not place.startswith(_SCHEME):
        if "://" in place:
            message = f"archive {place!r} is neither a folder nor s3://bucket/prefix"
            raise AffidavitError("INVALID_OPTION", message, field="archive")
        return FolderStore(Path(place).expanduser().absolute())
    bucket, _, prefix = place.removeprefix(_SCHEME).partition("/")
    if not bucket:
        raise AffidavitError("INVALID_OPTION", f"archive {place!r} names no bucket", field="archive")
    prefix = prefix.strip("/")
    return S3Store(bucket, f"{prefix}/" if prefix else "", endpoint)


def log_verifiers(keys: Path, origin: str) -> list[Verifier]:
    """The log's keys, under its origin: `log.pub`, and those that were rotated away, each up to where it was.

    Raises:
        AffidavitError: LOG_UNAVAILABLE: there is no public key of the log, or one cannot be read.
    """
    try:
        return LogKeys.read(keys).verifiers(origin)
    except FileNotFoundError as error:
        raise AffidavitError(
            "LOG_UNAVAILABLE", f"{error.filename} is missing: nothing can be verified without it"
        ) from None
    except (KeyFileError, OSError) as error:
        raise AffidavitError("LOG_UNAVAILABLE", f"a public key of the log cannot be read: {error}") from None
