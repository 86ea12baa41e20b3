"""The log's key is rotated: the log goes on, old receipts stay valid, and no crash on the way leaves a log that does not."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence.keys import load_public_key, private_pem, public_pem
from affidavit.libs.evidence.keysource import KeySource
from affidavit.libs.evidence.logkeys import LogKeys
from affidavit.libs.evidence.note import NoteError, TreeHead, Verifier, open_checkpoint, sign_checkpoint
from affidavit.libs.evidence.receipt import VerificationError, verify_receipt
from affidavit.libs.evidence.rotation import Handover, RotationError, chain_text, follow, parse_chain
from affidavit.services.audit.append_stream import entry_of, receipt
from affidavit.services.audit.backup import back_up
from affidavit.services.audit.fsck import check_log
from affidavit.services.audit.handovers import handovers
from affidavit.services.audit.log import EvidenceLog, Proven
from affidavit.services.audit.offline import Here, silent
from affidavit.services.audit.opening import LogFolders
from affidavit.services.audit.publishing import Published
from affidavit.services.audit.restore import restore
from affidavit.services.audit.rotate import rotate
from tests.contract.audit_process import item


def unused_archive() -> NoReturn:
    raise AssertionError("nothing was released to an archive")


KILLED_ROTATION = """
import os, signal, sys
from pathlib import Path
from affidavit.libs.evidence import durablefile
from affidavit.libs.evidence.keysource import KeySource
from affidavit.services.audit import rotate, rotation
from affidavit.services.audit.opening import LogFolders
from affidavit.services.audit.head import HeadFile
from affidavit.services.audit.store import Store

left = int(sys.argv[2])
def counted(change):
    def step(*arguments, **named):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return change(*arguments, **named)
    return step
for name in ("create_file", "replace_file", "_remove"):
    setattr(rotation, name, counted(getattr(rotation, name)))
Store.commit = counted(Store.commit)
HeadFile.replace = counted(HeadFile.replace)
rotate.rotate(LogFolders.below(Path(sys.argv[1])), KeySource())
"""
STEPS = 9  # durable changes of a rotation of the log's own file, the head that opening replaces with them


def add(folders: LogFolders, *names: str) -> list[Proven]:
    log = EvidenceLog(folders)
    try:
        outcomes = log.append([entry_of(item(name)) for name in names])
    finally:
        log.close()
    return [outcome for outcome in outcomes if isinstance(outcome, Proven)]


def findings(home: Path) -> list[str]:
    return [f.what for f in check_log(LogFolders.below(home), home / "audit" / "tiles", silent).findings]


def chain(folders: LogFolders) -> list[Handover]:
    log = EvidenceLog(folders)
    try:
        return handovers(log)
    finally:
        log.close()


def test_a_rotated_log_goes_on_and_receipts_from_before_and_after_verify(tmp_path: Path) -> None:
    folders = LogFolders.below(tmp_path / "home")
    (before,) = add(folders, "before")
    first = LogKeys.read(folders.keys).current
    done = rotate(folders, KeySource())
    (after,) = add(folders, "after")
    keys = LogKeys.read(folders.keys)
    assert (done.index, after.index) == (1, 2)
    assert before.head.tree.origin == after.head.tree.origin
    assert keys.retired[0].key == first != keys.current
    for proven in (before, after):
        assert verify_receipt(receipt(proven), keys).leaf.index == proven.index
    assert verify_receipt(receipt(before), first).leaf.index == 0
    with pytest.raises(VerificationError, match="signature: "):
        verify_receipt(receipt(after), first)
    assert not (folders.keys / "retired" / "1.key").exists()
    assert findings(tmp_path / "home") == []


def test_whoever_trusts_one_key_follows_to_the_others_over_two_rotations(tmp_path: Path) -> None:
    folders = LogFolders.below(tmp_path / "home")
    (before,) = add(folders, "before")
    old = LogKeys.read(folders.keys).current
    rotate(folders, KeySource())
    middle = LogKeys.read(folders.keys).current
    rotate(folders, KeySource(), keep_old=True)
    (after,) = add(folders, "after")
    found = chain(folders)
    for trusted in (old, middle, LogKeys.read(folders.keys).current):
        keys = follow(trusted, parse_chain(chain_text(found)))
        assert keys == LogKeys.read(folders.keys)
        assert verify_receipt(receipt(after), keys).leaf.index == 3
        assert verify_receipt(receipt(before), keys).leaf.index == 0
    for handover in found:
        _, rotation = handover.verify()
        for key in (rotation.old, rotation.new):
            assert open_checkpoint(handover.checkpoint, [key]).origin == key.name
    assert (folders.keys / "retired" / "2.key").stat().st_mode & 0o777 == 0o600
    stranger = Ed25519PrivateKey.generate().public_key()
    with pytest.raises(RotationError, match="the trusted key is none"):
        follow(stranger, found)
    with pytest.raises(RotationError):
        follow(old, [found[0], found[0]])


def test_a_handover_that_one_key_alone_signed_or_that_was_changed_hands_nothing_over(tmp_path: Path) -> None:
    folders = LogFolders.below(tmp_path / "home")
    add(folders, "a", "b")
    rotate(folders, KeySource())
    (good,) = chain(folders)
    assert good.verify()[0] == 2
    lines = good.checkpoint.decode().splitlines(keepends=True)
    forged = [
        Handover(good.leaf, good.path, "".join(lines[:-1]).encode()),
        Handover(good.leaf, good.path, "".join([*lines[:-2], lines[-1]]).encode()),
        Handover(good.leaf, good.path[:-1], good.checkpoint),
        Handover(good.leaf.replace(b'"ok"', b'"uncertain"'), good.path, good.checkpoint),
        Handover(good.leaf.replace(b'"sha256":"', b'"sha256":"0'), good.path, good.checkpoint),
    ]
    for handover in forged:
        assert handover != good
        with pytest.raises(RotationError):
            handover.verify()


def test_a_stolen_retired_key_signs_nothing_after_its_handover(tmp_path: Path) -> None:
    folders = LogFolders.below(tmp_path / "home")
    add(folders, "before")
    rotate(folders, KeySource(), keep_old=True)
    keys = LogKeys.read(folders.keys)
    stolen = KeySource(str(folders.keys / "retired" / "1.key")).load(folders.keys)
    origin = Verifier.parse(rotation_name(folders)).name
    assert keys.open(sign_checkpoint(TreeHead(origin, 2, bytes(32)), stolen)).size == 2
    with pytest.raises(NoteError, match="retired at 2"):
        keys.open(sign_checkpoint(TreeHead(origin, 3, bytes(32)), stolen))
    with pytest.raises(AffidavitError, match="was retired at record 1"):
        EvidenceLog(LogFolders.below(tmp_path / "home", key=KeySource(str(folders.keys / "retired" / "1.key"))))


def rotation_name(folders: LogFolders) -> str:
    return chain(folders)[0].verify()[1].new.text()


def test_a_rotation_between_files_needs_the_new_place_in_the_settings(tmp_path: Path) -> None:
    home, given = tmp_path / "home", tmp_path / "given.pem"
    own = LogFolders.below(home)
    add(own, "before")
    with pytest.raises(AffidavitError, match="openssl genpkey"):
        rotate(own, KeySource(str(given)))
    given.write_bytes(private_pem(Ed25519PrivateKey.generate()))
    given.chmod(0o444)
    with pytest.raises(AffidavitError, match="can be read by others"):
        rotate(own, KeySource(str(given)))
    given.chmod(0o400)
    rotate(own, KeySource(str(given)))
    assert not (own.keys / "log.key").exists()
    with pytest.raises(AffidavitError, match="AFFIDAVIT_AUDIT_KEY"):
        add(own, "refused")
    there = LogFolders.below(home, key=KeySource(str(given)))
    (after,) = add(there, "after")
    assert verify_receipt(receipt(after), LogKeys.read(own.keys)).leaf.index == 2
    with pytest.raises(AffidavitError, match="a rotation needs a new one"):
        rotate(there, KeySource(str(given)))
    rotate(there, KeySource())
    assert add(own, "again")[0].index == 4


def test_a_rotated_log_is_backed_up_restored_and_its_tiles_are_followed(tmp_path: Path) -> None:
    home = tmp_path / "home"
    folders = LogFolders.below(home)
    add(folders, "before")
    log = EvidenceLog(folders)
    Published(log, home / "audit" / "tiles").publish(log.head)
    log.close()
    rotate(folders, KeySource())
    assert findings(home) == []  # the checkpoint published is the old key's
    back_up(folders, tmp_path / "copy", silent, with_keys=True)
    target = LogFolders.below(tmp_path / "again")
    restore(tmp_path / "copy", Here(target, tmp_path / "again" / "audit" / "tiles", unused_archive), silent)
    assert LogKeys.read(target.keys) == LogKeys.read(folders.keys)
    assert add(target, "after")[0].index == 2
    assert findings(tmp_path / "again") == []
    (target.keys / "retired" / "1.checkpoint").write_bytes(b"")
    assert any("1.checkpoint" in what for what in findings(tmp_path / "again"))


def test_a_log_set_back_to_before_its_rotation_is_refused(tmp_path: Path) -> None:
    home, old = tmp_path / "home", tmp_path / "old"
    folders = LogFolders.below(home)
    add(folders, "before")
    back_up(folders, old, silent, with_keys=True)
    rotate(folders, KeySource())
    assert add(folders, "after")[0].index == 2
    (home / "audit").rename(tmp_path / "lost")
    (old / "audit").rename(home / "audit")
    with pytest.raises(AffidavitError) as refused:
        EvidenceLog(folders)
    assert refused.value.reason == "LOG_DAMAGED"


def test_a_log_in_use_is_not_rotated(tmp_path: Path) -> None:
    folders = LogFolders.below(tmp_path)
    add(folders, "before")
    log = EvidenceLog(folders)
    with pytest.raises(AffidavitError, match="in use by process") as refused:
        rotate(folders, KeySource())
    log.close()
    assert refused.value.reason == "LOG_UNAVAILABLE"
    assert rotate(folders, KeySource()).index == 1


@pytest.mark.slow
@pytest.mark.parametrize("step", range(STEPS + 1))
def test_a_rotation_killed_at_any_step_leaves_a_log_that_starts(tmp_path: Path, step: int) -> None:
    folders = LogFolders.below(tmp_path / "home")
    (before,) = add(folders, "before")
    first = LogKeys.read(folders.keys).current
    command = [sys.executable, "-c", KILLED_ROTATION, str(tmp_path / "home"), str(step)]
    ended = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True)
    assert ended.returncode == (0 if step == STEPS else -signal.SIGKILL), ended.stderr
    (after,) = add(folders, "after")
    keys = LogKeys.read(folders.keys)
    happened = step >= 3  # its record was committed
    assert after.index == (2 if happened else 1)
    assert (keys.current == first) != happened
    assert len(chain(folders)) == happened
    for proven in (before, after):
        assert verify_receipt(receipt(proven), keys).leaf.index == proven.index
    assert {path.name for path in folders.keys.iterdir()} == {"log.key", "log.pub"} | (
        {"retired"} if happened else set()
    )
    assert public_pem(load_public_key(folders.keys / "log.pub")) == public_pem(keys.current)
    assert findings(tmp_path / "home") == []
    rotate(folders, KeySource())
    assert add(folders, "last")[0].index == after.index + 2
