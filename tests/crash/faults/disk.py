"""The disk below one folder, from what the shim (`calls.c`) journalled: what lies there now, and what a power cut would leave.

A file's bytes are durable once that file was synced, a name once its folder was. Of everything else a power cut may
leave nothing, a part in order, or any part:

| variant   | of a file's unsynced changes                       | of a folder's unsynced names |
| --------- | -------------------------------------------------- | ---------------------------- |
| NOTHING   | none                                               | none                         |
| PREFIX    | the first ones, the last of them torn at any byte  | the first ones               |
| SCATTERED | any sectors of 512 bytes; zeroes where one is lost | the first ones               |

What was written before a sync that failed is never durable, whatever is synced later: the kernel marks those pages
clean (the PostgreSQL fsync surprise of 2018).
"""

import random
import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

SECTOR = 512
_HEADER = struct.Struct("<c7xQQQQIIII")


class Variant(Enum):
    """What a power cut leaves of that which was not synced."""

    NOTHING = "nothing"
    PREFIX = "prefix"
    SCATTERED = "scattered"


@dataclass(frozen=True)
class Change:
    """A file's change: `data` at `offset`; or no data, and the file ends at `offset`, or not before it (`extend`)."""

    offset: int
    data: bytes | None = None
    extend: bool = False

    def apply(self, content: bytearray) -> None:
        if self.data is None:
            if not self.extend:
                del content[self.offset :]
            content.extend(bytes(max(0, self.offset - len(content))))
            return
        content.extend(bytes(max(0, self.offset - len(content))))
        content[self.offset : self.offset + len(self.data)] = self.data

    def torn(self, length: int) -> "Change":
        return Change(self.offset, None if self.data is None else self.data[:length], self.extend)

    def sectors(self) -> Iterator["Change"]:
        """The change's parts in each sector of the disk."""
        data = self.data or b""
        begin = 0
        while begin < len(data):
            end = min(len(data), begin + SECTOR - (self.offset + begin) % SECTOR)
            yield Change(self.offset + begin, data[begin:end])
            begin = end


@dataclass
class File:
    mode: int
    live: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    pending: list[Change] = field(default_factory=list)

    def change(self, change: Change) -> None:
        change.apply(self.live)
        self.pending.append(change)

    def synced(self) -> None:
        for change in self.pending:
            change.apply(self.durable)
        self.pending.clear()

    def after_cut(self, variant: Variant, seeded: random.Random) -> bytes:
        content = bytearray(self.durable)
        for change in _kept(self.pending, variant, seeded):
            change.apply(content)
        return bytes(content)


@dataclass(frozen=True)
class Naming:
    """A folder's change: `removed` goes, `added` names `node`; both for a rename."""

    removed: str = ""
    added: str = ""
    node: "File | Folder | None" = None

    def apply(self, names: "dict[str, File | Folder]") -> None:
        names.pop(self.removed, None)
        if self.node is not None:
            names[self.added] = self.node


@dataclass
class Folder:
    mode: int
    live: "dict[str, File | Folder]" = field(default_factory=dict)
    durable: "dict[str, File | Folder]" = field(default_factory=dict)
    pending: list[Naming] = field(default_factory=list)

    def change(self, naming: Naming) -> None:
        naming.apply(self.live)
        self.pending.append(naming)

    def synced(self) -> None:
        for naming in self.pending:
            naming.apply(self.durable)
        self.pending.clear()

    def after_cut(self, variant: Variant, seeded: random.Random) -> "dict[str, File | Folder]":
        names = dict(self.durable)
        kept = 0 if variant is Variant.NOTHING else seeded.randint(0, len(self.pending))
        for naming in self.pending[:kept]:
            naming.apply(names)
        return names


class Disk:
    """The tree below `root`, all of it durable when this is made; `replay` adds what a process did to it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._nodes: dict[int, File | Folder] = {}
        self._top = self._folder(root)
        self.counts: dict[str, int] = {}

    def replay(self, journal: Path, after_rename: Callable[[str], None] = lambda _: None) -> None:
        """Apply a process's journal; a second process's may follow. `after_rename` is told each new name."""
        data = memoryview(journal.read_bytes())
        at = 0
        while at < len(data):
            kind, inode, folder, folder2, offset, *lengths, _ = _HEADER.unpack_from(data, at)
            at += _HEADER.size
            parts: list[bytes] = []
            for length in lengths:
                parts.append(bytes(data[at : at + length]))
                at += length
            self._apply(kind.decode(), inode, folder, folder2, offset, parts[0].decode(), parts[1].decode(), parts[2])
            if kind == b"r":
                after_rename(parts[1].decode())

    def live(self, path: Path) -> bytes | None:
        """A file's bytes as a reader sees them now; None when there is none. `path` is below the root."""
        node: File | Folder | None = self._top
        for part in path.parts:
            node = node.live.get(part) if isinstance(node, Folder) else None
        return bytes(node.live) if isinstance(node, File) else None

    def durable(self, path: Path) -> bytes | None:
        """A file's bytes as every power cut leaves them; None when it may be gone."""
        node: File | Folder | None = self._top
        for part in path.parts:
            node = node.durable.get(part) if isinstance(node, Folder) else None
        return bytes(node.durable) if isinstance(node, File) else None

    def check(self) -> None:
        """That what lies on the real disk is what the journal says: no change went past the shim."""
        real = _tree(self._root)
        known = dict(_walk(self._top.live, Path()))
        assert not (missed := real.keys() ^ known.keys()), f"the journal missed what was done to {sorted(missed)}"
        for path, content in real.items():
            node = known[path]
            assert isinstance(node, Folder) or bytes(node.live) == content, f"the journal missed a write to {path}"

    def cut(self, variant: Variant, seed: int) -> None:
        """Put in the place of the tree what a power cut leaves of it."""
        seeded = random.Random(seed)
        for path in self._root.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        _restore(self._root, self._top, variant, seeded)

    def _folder(self, path: Path) -> Folder:
        folder = Folder(path.stat().st_mode & 0o7777)
        self._nodes[path.stat().st_ino] = folder
        for entry in path.iterdir():
            if entry.is_dir():
                folder.live[entry.name] = self._folder(entry)
            else:
                content = entry.read_bytes()
                file = File(entry.stat().st_mode & 0o7777, bytearray(content), bytearray(content))
                self._nodes[entry.stat().st_ino] = folder.live[entry.name] = file
        folder.durable = dict(folder.live)
        return folder

    def _apply(
        self, kind: str, inode: int, folder: int, folder2: int, offset: int, name: str, name2: str, data: bytes
    ) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1
        match kind:
            case "c" | "m":
                self._nodes[inode] = File(offset) if kind == "c" else Folder(offset)
                self._names(folder).change(Naming(added=name, node=self._nodes[inode]))
            case "w":
                self._file(inode).change(Change(offset, data))
            case "t" | "e":
                self._file(inode).change(Change(offset, extend=kind == "e"))
            case "s":
                self._nodes[inode].synced()
            case "x":
                self._nodes[inode].pending.clear()
            case "a":
                for node in self._nodes.values():
                    node.synced()
            case "r" if folder == folder2:
                self._names(folder).change(Naming(name, name2, self._nodes[inode]))
            case "r":
                self._names(folder2).change(Naming(added=name2, node=self._nodes[inode]))
                self._names(folder).change(Naming(removed=name))
            case "l":
                self._names(folder).change(Naming(added=name, node=self._nodes[inode]))
            case "u":
                self._names(folder).change(Naming(removed=name))
            case _:
                raise AssertionError(f"the journal has an entry of kind {kind!r}")

    def _names(self, inode: int) -> Folder:
        node = self._nodes[inode]
        assert isinstance(node, Folder)
        return node

    def _file(self, inode: int) -> File:
        node = self._nodes[inode]
        assert isinstance(node, File)
        return node


def _kept(pending: list[Change], variant: Variant, seeded: random.Random) -> list[Change]:
    if variant is Variant.NOTHING or not pending:
        return []
    if variant is Variant.PREFIX:
        whole = seeded.randint(0, len(pending))
        torn = (
            [] if whole == len(pending) else [pending[whole].torn(seeded.randint(0, len(pending[whole].data or b"")))]
        )
        return [*pending[:whole], *(change for change in torn if change.data)]
    likely = seeded.choice([0.1, 0.5, 0.9])
    parts = [part for change in pending for part in ([change] if change.data is None else change.sectors())]
    return [part for part in parts if seeded.random() < likely]


def _restore(path: Path, folder: Folder, variant: Variant, seeded: random.Random) -> None:
    for name, node in folder.after_cut(variant, seeded).items():
        if isinstance(node, Folder):
            (path / name).mkdir(node.mode)
            _restore(path / name, node, variant, seeded)
        else:
            (path / name).write_bytes(node.after_cut(variant, seeded))
            (path / name).chmod(node.mode)


def _tree(root: Path) -> dict[Path, bytes | None]:
    return {p.relative_to(root): None if p.is_dir() else p.read_bytes() for p in root.rglob("*")}


def _walk(names: dict[str, File | Folder], below: Path) -> Iterator[tuple[Path, File | Folder]]:
    for name, node in names.items():
        yield below / name, node
        if isinstance(node, Folder):
            yield from _walk(node.live, below / name)
