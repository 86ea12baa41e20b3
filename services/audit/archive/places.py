"""Which object store a setting means."""

from pathlib import Path

from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence.keys import PUBLIC_NAME, KeyFileError, load_public_key
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
    """The log's keys, under its origin: `log.pub`, and those that it had before, which stand beside it.

    Raises:
        AffidavitError: LOG_UNAVAILABLE: there is no public key of the log.
    """
    found: list[Verifier] = []
    for path in sorted(keys.glob("log*.pub")):
        try:
            found.append(Verifier(origin, load_public_key(path)))
        except (KeyFileError, OSError) as error:
            raise AffidavitError("LOG_UNAVAILABLE", f"{path} cannot be read: {error}") from None
    if not found:
        raise AffidavitError("LOG_UNAVAILABLE", f"{keys / PUBLIC_NAME} is missing: nothing can be verified without it")
    return found
