"""`affidavit audit key rotate [--to PLACE] [--keep-old]`: give a stopped log another key.

The record of the rotation is the last one that the old key signs and the first one that the new key does; `rotation.py` has
the order in which it becomes durable. Exit codes: 0 done, 2 wrong use, 3 the log is in use, 4 it is damaged.
"""

import hashlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from affidavit.audit.v1 import audit_pb2
from affidavit.evidence.v1 import evidence_pb2
from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence.commitment import new_salt
from affidavit.libs.evidence.keys import KeyFileError, Signer, private_pem
from affidavit.libs.evidence.keysource import KeySource
from affidavit.libs.evidence.logkeys import LogKeys
from affidavit.libs.evidence.note import TreeHead, Verifier, sign_checkpoint, signed_also
from affidavit.libs.evidence.rotation import REQUEST_ID, TENANT, Rotation
from affidavit.services.audit.entry import Entry, entry_of
from affidavit.services.audit.group import Group
from affidavit.services.audit.offline import Here, Progress, Run
from affidavit.services.audit.opening import LogFolders, LogLock, OpenLog, open_log
from affidavit.services.audit.rotation import Pending


@dataclass(frozen=True)
class Rotated:
    """What was done."""

    index: int  # of the rotation's record
    rotation: Rotation
    old: str  # where the old key is, or was
    new: str


def rotate(folders: LogFolders, to: KeySource, *, keep_old: bool = False) -> Rotated:
    """Give the log the key that is at `to`, or, when that is the log's own file, a new one.

    Raises:
        AffidavitError: LOG_UNAVAILABLE: there is no log, it is in use, or the disk refuses; LOG_DAMAGED: it does not start;
            INVALID_OPTION: the new key is none, or one that the log has or had.
    """
    if not folders.store.exists():
        raise AffidavitError("LOG_UNAVAILABLE", f"there is no log in {folders.store.parent}")
    lock = LogLock(folders.lock)
    try:
        opened = open_log(folders)
        try:
            new, new_private = _new_key(folders.keys, to)
            return _rotate(folders, opened, new, new_private, to, keep_old)
        finally:
            opened.store.close()
    finally:
        lock.release()


def _rotate(
    folders: LogFolders, opened: OpenLog, new: Signer, new_private: bytes, to: KeySource, keep_old: bool
) -> Rotated:
    origin, old = opened.head.tree.origin, opened.key
    rotation = Rotation(Verifier(origin, old.public_key()), Verifier(origin, new.public_key()))
    group = Group(opened.store, opened.frontier, max(opened.newest_time, datetime.now(UTC)))
    (place,) = group.place([_entry(rotation)])
    grown = group.grow()
    if isinstance(place, AffidavitError) or grown is None:
        raise RuntimeError(f"the rotation's record has no place: {place}")
    head = TreeHead(origin, grown.tree.size, grown.tree.root, opened.head.tree.extensions)
    # The new key first: by hand, the first signature is the one that log.pub verifies.
    note = signed_also(sign_checkpoint(head, new), origin, old)
    pending = Pending(grown.records[0].leaf, note, new_private, keep_old)
    pending.write(folders.keys)
    opened.store.commit(grown.records, grown.nodes, grown.tree)
    pending.finish(folders.head, folders.keys)
    return Rotated(place.index, rotation, folders.key.where(folders.keys), to.where(folders.keys))


def _entry(rotation: Rotation) -> Entry:
    body = rotation.body()
    draft = evidence_pb2.RecordDraft(
        tenant=TENANT,
        request_id=REQUEST_ID,
        kind=evidence_pb2.RECORD_KIND_ENVIRONMENT,
        phase=evidence_pb2.RECORD_PHASE_SINGLE,
        options_json=b"{}",
        status="ok",
        body_json=body,
    )
    item = audit_pb2.AppendItem(
        step=rotation.new.key_id.hex(), content_digest=hashlib.sha256(body).digest(), draft=draft, salt=new_salt()
    )
    return entry_of(item)


def _new_key(keys: Path, to: KeySource) -> tuple[Signer, bytes]:
    """The new key, and its PEM where it is the log's own file."""
    try:
        if to.own:
            made = Ed25519PrivateKey.generate()
            return made, private_pem(made)
        signer = to.load(keys)
        if signer.public_key() in LogKeys.read(keys).all():
            raise KeyFileError(f"{to.where(keys)} is a key that the log has, or had before: a rotation needs a new one")
    except FileNotFoundError:
        message = f"there is no key {to.where(keys)}; make it: openssl genpkey -algorithm ed25519 -out {to.place}"
        raise AffidavitError("INVALID_OPTION", message, field="to") from None
    except (KeyFileError, OSError) as error:
        raise AffidavitError("INVALID_OPTION", str(error), field="to") from None
    return signer, b""


def main(argv: Sequence[str], run: Run) -> int:
    """The command, with the arguments after its name; its exit code."""
    arguments, to = [argument for argument in argv if argument != "--keep-old"], ""
    if arguments[:1] == ["--to"]:
        if len(arguments) < 2:
            sys.stderr.write("rotate: --to FILE or --to pkcs11:…\n")
            return 2
        to, arguments = arguments[1], arguments[2:]
    keep_old = "--keep-old" in argv

    def work(here: Here, progress: Progress) -> int:
        old = here.folders.key
        try:
            done = rotate(here.folders, old.elsewhere(to), keep_old=keep_old)
        except AffidavitError as error:
            if error.reason != "INVALID_OPTION":
                raise
            sys.stderr.write(f"rotate: {error.message}\n")
            return 2
        lines = [
            f"log {done.rotation.new.name}: record {done.index} hands over from one key to the next",
            f"old       {done.rotation.old.text()}",
            f"new       {done.rotation.new.text()}",
        ]
        if not old.own:
            lines.append(
                f"the old key is still in {done.old}: it signs nothing for this log any more, destroy it there"
            )
        elif keep_old:
            lines.append(f"the old private key is kept in {here.folders.keys / 'retired' / f'{done.index}.key'}")
        if to != old.place:
            lines.append(f"before the next start: AFFIDAVIT_AUDIT_KEY={to or chr(39) * 2}")
        lines.append("give the new verifier key to witnesses now; auditors and monitors can follow from the old one")
        sys.stdout.write("\n".join(lines) + "\n")
        return 0

    return run(arguments, work)
