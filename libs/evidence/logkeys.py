"""The keys of one log: the one that signs now, and those that signed before it, each up to where it was retired.

    keys = LogKeys.read(folder)          # log.pub, and retired/ where the key was rotated
    head = keys.open(note)               # whichever of them signed it, if it might

`retired/N.pub` is the key that signed up to the record of index N, which names its successor; `retired/N.checkpoint` the
checkpoint of N + 1 records that both signed.
"""

from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from affidavit.libs.evidence.keys import PUBLIC_NAME, load_public_key
from affidavit.libs.evidence.note import NoteError, TreeHead, Verifier, open_checkpoint, split_note

RETIRED = "retired"
PUBLIC_SUFFIX = ".pub"
CHECKPOINT_SUFFIX = ".checkpoint"


@dataclass(frozen=True)
class RetiredKey:
    """A key that was rotated away."""

    key: Ed25519PublicKey
    until: int  # records in the last tree that it signed; the last of them names its successor


@dataclass(frozen=True)
class LogKeys:
    """What a checkpoint of a log may be signed with."""

    current: Ed25519PublicKey
    retired: tuple[RetiredKey, ...] = ()  # oldest first

    @classmethod
    def of(cls, keys: "LogKeys | Ed25519PublicKey") -> "LogKeys":
        """`keys`, or one key alone."""
        return keys if isinstance(keys, LogKeys) else cls(keys)

    @classmethod
    def read(cls, folder: Path) -> "LogKeys":
        """Those of a keys folder.

        Raises:
            OSError: one cannot be read. KeyFileError: one is no Ed25519 public key in PEM.
        """
        return cls.beside(folder / PUBLIC_NAME)

    @classmethod
    def beside(cls, public_key: Path) -> "LogKeys":
        """The key in a PEM file, and those in the folder `retired` beside it. Raises as `read`."""
        current = load_public_key(public_key)
        found = sorted(
            (index, path) for path in retired_files(public_key.parent) if (index := _index(path)) is not None
        )
        return cls(current, tuple(RetiredKey(load_public_key(path), index + 1) for index, path in found))

    @property
    def least_size(self) -> int:
        """So many records the log has at least: the newest rotation is one of them."""
        return self.retired[-1].until if self.retired else 0

    def all(self) -> tuple[Ed25519PublicKey, ...]:
        """Every key, the newest first."""
        return (self.current, *(retired.key for retired in reversed(self.retired)))

    def verifiers(self, origin: str) -> list[Verifier]:
        """The same under the log's name."""
        return [Verifier(origin, self.current), *(Verifier(origin, k.key, k.until) for k in self.retired)]

    def open(self, note: bytes) -> TreeHead:
        """The tree head that one of them signed under the origin that the note names itself.

        Raises:
            NoteError: none did, or one that was retired before.
        """
        return open_checkpoint(note, self.verifiers(TreeHead.unverified(note).origin))

    def signer_of(self, note: bytes) -> Ed25519PublicKey:
        """The newest key that signed the checkpoint. Raises as `open`."""
        origin = self.open(note).origin
        named = {(s.name, s.key_id) for s in split_note(note)[1]}
        for key in self.all():
            if (origin, Verifier(origin, key).key_id) in named:
                return key
        raise NoteError("no known key signed it")


def retired_files(folder: Path) -> list[Path]:
    """Public keys in the folder `retired` of a keys folder."""
    return sorted((folder / RETIRED).glob(f"*{PUBLIC_SUFFIX}"))


def _index(path: Path) -> int | None:
    name = path.name.removesuffix(PUBLIC_SUFFIX)
    return int(name) if name.isascii() and name.isdecimal() else None
