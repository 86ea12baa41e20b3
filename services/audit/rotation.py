"""A key rotation that is under way, and how every start ends it, whatever it was cut short by.

`keys/rotation` (mode 0600) holds all that is needed, written whole before anything else changes: the rotation's leaf, the
checkpoint over it that both keys signed, the new private key where it is the log's own. Then

1. the record is committed to the store;
2. the signed head becomes that checkpoint;
3. `retired/N.pub` and `retired/N.checkpoint` are written, N being the record's index;
4. `log.key` and `log.pub` are replaced: this is where the old private key ends;
5. `keys/rotation` is deleted.

A crash before 1 leaves a store without the record: the rotation did not happen, the new key is forgotten. After 1, it is
ended from where it was; each step may be done again.
"""

import base64
from dataclasses import dataclass
from pathlib import Path

from affidavit.libs import canonicaljson
from affidavit.libs.canonicaljson import Json
from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence.durablefile import create_file, replace_file, sync_folder
from affidavit.libs.evidence.keys import PRIVATE_NAME, PUBLIC_NAME, public_pem
from affidavit.libs.evidence.logkeys import CHECKPOINT_SUFFIX, PUBLIC_SUFFIX, RETIRED
from affidavit.libs.evidence.members import Members
from affidavit.libs.evidence.note import TreeHead
from affidavit.libs.evidence.record import parse_leaf
from affidavit.libs.evidence.rotation import Rotation
from affidavit.services.audit.head import HeadFile
from affidavit.services.audit.store import Store

NAME = "rotation"
_VERSION = "1"
_MEMBERS = frozenset({"checkpoint", "keep_old", "key", "leaf", "v"})


@dataclass(frozen=True)
class Pending:
    """What a rotation will have done."""

    leaf: bytes
    checkpoint: bytes  # signed by both keys
    new_private: bytes  # PEM; empty when the new key is not the log's own file
    keep_old: bool

    @property
    def index(self) -> int:
        return parse_leaf(self.leaf).index

    def write(self, keys: Path) -> None:
        """Make it durable, whole. Raises OSError."""
        value: dict[str, Json] = {
            "checkpoint": base64.b64encode(self.checkpoint).decode(),
            "keep_old": self.keep_old,
            "key": self.new_private.decode() or None,
            "leaf": base64.b64encode(self.leaf).decode(),
            "v": _VERSION,
        }
        create_file(keys / NAME, canonicaljson.dumps(value), 0o600)

    @classmethod
    def read(cls, keys: Path) -> "Pending | None":
        """Raises AffidavitError (LOG_DAMAGED): the file is not what `write` wrote."""
        path = keys / NAME
        try:
            said = Members(canonicaljson.loads(path.read_bytes()), _MEMBERS, frozenset())
            if said.text("v") != _VERSION:
                raise ValueError(f"version {said.text('v')}")
            leaf, checkpoint = (base64.b64decode(said.text(n), validate=True) for n in ("leaf", "checkpoint"))
            pending = cls(leaf, checkpoint, (said.text_or_none("key") or "").encode(), said.boolean("keep_old"))
            Rotation.of(parse_leaf(leaf))
            TreeHead.unverified(checkpoint)
        except FileNotFoundError:
            return None
        except ValueError as error:
            message = f"{path}, a key rotation under way, cannot be read: {error}; restore it, or the log from a backup"
            raise AffidavitError("LOG_DAMAGED", message) from None
        return pending

    def finish(self, head: Path, keys: Path) -> None:
        """Steps 2 to 5; the record is in the store. Raises OSError: call it again.

        Args:
            head: folder of the signed head.
            keys: the log's keys folder.
        """
        rotation, index = Rotation.of(parse_leaf(self.leaf)), self.index
        head_file = HeadFile(head)
        note = head_file.read()
        if note is None or TreeHead.unverified(note).size <= index:
            head_file.replace(self.checkpoint)
        (keys / RETIRED).mkdir(mode=0o700, exist_ok=True)
        replace_file(keys / RETIRED / f"{index}{CHECKPOINT_SUFFIX}", self.checkpoint)
        replace_file(keys / RETIRED / f"{index}{PUBLIC_SUFFIX}", public_pem(rotation.old.key))
        sync_folder(keys)
        self._replace_private(keys, index)
        replace_file(keys / PUBLIC_NAME, public_pem(rotation.new.key))
        _remove(keys / NAME)

    def _replace_private(self, keys: Path, index: int) -> None:
        private = keys / PRIVATE_NAME
        there = private.read_bytes() if private.exists() else None
        if there == self.new_private:
            return
        if there is not None and self.keep_old:
            replace_file(keys / RETIRED / f"{index}.key", there, 0o600)
        if self.new_private:
            replace_file(private, self.new_private, 0o600)
        elif there is not None:
            _remove(private)


def settle_rotation(store: Path, head: Path, keys: Path) -> None:
    """End a rotation that was cut short, before the log's key is read. The caller holds the lock.

    Args:
        store, head, keys: the log's folders.

    Raises:
        AffidavitError: LOG_DAMAGED: what it needs is gone, or the store has another record in its place.
            LOG_UNAVAILABLE: the disk refuses.
    """
    pending = Pending.read(keys)
    if pending is None:
        return
    if not store.exists():
        message = f"the store {store} is missing, and a rotation of the log's key was under way"
        raise AffidavitError("LOG_DAMAGED", f"{message}; restore the store from a backup")
    look = Store(store, look=True)
    try:
        size, leaf = look.tree().size, look.leaf(pending.index)
    finally:
        look.close()
    try:
        if size <= pending.index:
            _remove(keys / NAME)
        elif leaf == pending.leaf:
            pending.finish(head, keys)
        else:
            message = f"record {pending.index} is not the key rotation that {keys / NAME} says"
            raise AffidavitError("LOG_DAMAGED", f"{message}; restore store and keys that belong together")
    except OSError as error:
        raise AffidavitError("LOG_UNAVAILABLE", f"a key rotation cannot be ended: {error}") from error


def _remove(path: Path) -> None:
    path.unlink(missing_ok=True)
    sync_folder(path.parent)
