"""The total check of a log's rotations: each was handed over by both keys, at its place in this log."""

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence import merkle
from affidavit.libs.evidence.logkeys import CHECKPOINT_SUFFIX, RETIRED, LogKeys
from affidavit.libs.evidence.note import TreeHead
from affidavit.libs.evidence.rotation import Handover, RotationError, follow
from affidavit.services.audit.store import Store
from affidavit.services.audit.storecheck import Finding

_RESTORE = "restore the folder keys/retired from a backup: without it nobody can follow from an old key to the new one"


def current_key(derived: Ed25519PublicKey, public: LogKeys | None) -> LogKeys:
    """The keys by the private one, where it is there: `log.pub` may be what is wrong."""
    return LogKeys(derived, public.retired if public else ())


def check_rotations(folder: Path, keys: LogKeys, store: Store) -> list[Finding]:
    """Findings about the folder `retired` of a keys folder; the store is whole.

    Raises:
        AffidavitError: the store cannot be read.
    """
    findings: list[Finding] = []
    handovers: list[Handover] = []
    for retired in keys.retired:
        index = retired.until - 1
        path = folder / RETIRED / f"{index}{CHECKPOINT_SUFFIX}"
        try:
            note = path.read_bytes()
            handovers.append(_handover(index, note, store))
        except OSError as error:
            findings.append(Finding("log key", f"{path}: {error.strerror}", _RESTORE))
        except (ValueError, AffidavitError) as error:  # NoteError and RotationError among them
            findings.append(Finding("log key", f"{path}: {error}", _RESTORE))
    if findings or not handovers:
        return findings
    try:
        if follow(keys.current, handovers) != keys:
            raise RotationError("the retired keys are not those that their rotations name")
    except RotationError as error:
        findings.append(Finding("log key", f"{folder / RETIRED}: {error}", _RESTORE))
    return findings


def _handover(index: int, note: bytes, store: Store) -> Handover:
    size = store.tree().size
    leaf = store.leaf(index) if index < size else None
    if leaf is None:
        raise RotationError(f"record {index}, which it is about, is not in the store of {size} records")
    head = TreeHead.unverified(note)
    if head.size != index + 1 or merkle.root(index + 1, store.node) != head.root:
        raise RotationError(f"it is not over the first {index + 1} records of this log")
    handover = Handover(leaf, tuple(merkle.prove_inclusion(index, index + 1, store.node)), note)
    handover.verify()
    return handover
