"""Faults planted in the source, each with the tests that must fail of it: what the suite would notice."""

from dataclasses import dataclass

CUT = (
    "tests/crash/test_audit_power_cut.py::test_at_the_moment_of_a_receipt_its_record_and_a_head_over_it_are_on_the_disk"
)
DAMAGED = "tests/crash/test_audit_damaged.py::"
AUDIT = "tests/contract/test_audit.py::"
WITNESS = "tests/unit/tools/test_witness.py::"


@dataclass(frozen=True)
class Mutant:
    """In `file`, `old` (which is there once) becomes `new`, and each of `tests` fails."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


MUTANTS = (
    Mutant(
        "skip the write-ahead log's sync",
        "services/audit/database.py",
        "self._whole.flush_wal(sync=True)",
        "self._whole.flush_wal(sync=False)",
        (CUT,),
    ),
    Mutant(
        "skip the head's sync",
        "services/audit/head.py",
        "            os.fdatasync(descriptor)\n",
        "",
        (CUT,),
    ),
    Mutant(
        "write every head into one slot",
        "services/audit/head.py",
        "(count - 1) % 2 * SLOT_BYTES",
        "0 * SLOT_BYTES",
        ("tests/unit/audit/test_head.py::test_whatever_a_crash_leaves_of_one_write_the_head_before_it_or_itself_is_read",),
    ),
    Mutant(
        "acknowledge before the commit",
        "services/audit/log.py",
        "            self._open.store.commit(grown.records, grown.nodes, tree)\n"
        "            self._open.head_file.write(head)\n",
        "            getattr(self, '_late', lambda: None)()\n"
        "            self._late = lambda: (\n"
        "                self._open.store.commit(grown.records, grown.nodes, tree),\n"
        "                self._open.head_file.write(head),\n"
        "            )\n",
        (CUT,),
    ),
    Mutant(
        "acknowledge before the head is on the disk",
        "services/audit/log.py",
        "            self._open.head_file.write(head)\n",
        "",
        (CUT,),
    ),
    Mutant(
        "write the head before the store",
        "services/audit/log.py",
        "            self._open.store.commit(grown.records, grown.nodes, tree)\n"
        "            self._open.head_file.write(head)\n",
        "            self._open.head_file.write(head)\n"
        "            self._open.store.commit(grown.records, grown.nodes, tree)\n",
        ("tests/crash/test_audit_faulty_disk.py::"
         "test_after_a_failed_sync_nothing_is_appended_until_the_log_was_opened_anew[.log]",),
    ),
    Mutant(
        "leave a new folder's name unsynced",
        "libs/evidence/durablefile.py",
        "        sync_folder(each.parent)\n",
        "        pass\n",
        (CUT,),
    ),
    Mutant(
        "try again after a failed sync",
        "services/audit/log.py",
        "        self._failure = AffidavitError(error.reason, error.message)\n",
        "",
        ("tests/crash/test_audit_faulty_disk.py::"
         "test_after_a_failed_sync_nothing_is_appended_until_the_log_was_opened_anew[audit/head]",),
    ),
    Mutant(
        "reuse an index",
        "services/audit/log.py",
        "        self._frontier = grown.frontier\n",
        "",
        (AUDIT + "test_proofs_lead_to_every_size_that_the_log_ever_had", CUT),
    ),
    Mutant(
        "ignore a repeated key",
        "services/audit/group.py",
        "        if index is not None:\n            if side is None",
        "        if False:\n            if side is None",
        (AUDIT + "test_the_same_key_with_the_same_content_gives_the_stored_receipt",),
    ),
    Mutant(
        "ignore other content under a key",
        "services/audit/group.py",
        "if side is None or side.content_digest != entry.content_digest:",
        "if side is None:",
        (AUDIT + "test_the_same_key_with_other_content_is_a_conflict_of_that_item_alone",),
    ),
    Mutant(
        "return another record's proof",
        "services/audit/log.py",
        "grown.prove(place.index)",
        "grown.prove(grown.tree.size - 1)",
        (AUDIT + "test_every_item_is_answered_before_a_half_closed_stream_ends",),
    ),
    Mutant(
        "start on a store that has less than the head",
        "services/audit/opening.py",
        "if head is not None and stored.size < head.tree.size:",
        "if False:",
        (DAMAGED + "test_a_deleted_write_ahead_log_is_named", DAMAGED + "test_a_truncated_store_is_named"),
    ),
    Mutant(
        "start on a fork",
        "services/audit/opening.py",
        "if head is not None and merkle.root(head.tree.size, look.node) != head.tree.root:",
        "if False:",
        (DAMAGED + "test_a_store_rolled_back_and_grown_again_has_another_past",),
    ),
    Mutant(
        "start on a tree whose frontier is another",
        "services/audit/opening.py",
        "if merkle.root(stored.size, look.node) != stored.root:",
        "if False:",
        (DAMAGED + "test_a_tree_that_contradicts_its_hashes_is_refused",),
    ),
    Mutant(
        "trust the newest records unread",
        "services/audit/opening.py",
        "if merkle.leaf_hash(leaf) != look.node(0, index):",
        "if False:",
        (DAMAGED + "test_a_changed_record_among_the_newest_is_refused",),
    ),
    Mutant(
        "serve a record without proving it",
        "services/audit/log.py",
        "            merkle.verify_inclusion(index, head.tree.size, merkle.leaf_hash(leaf), path, head.tree.root)\n",
        "            pass\n",
        ("tests/unit/audit/test_log.py::test_a_record_that_a_start_did_not_read_again_is_proved_before_it_is_served",),
    ),
    Mutant(
        "cosign without a consistency proof",
        "tools/witness/witness.py",
        "        merkle.verify_consistency(size, head.size, root, head.root, submission.proof)\n",
        "        pass\n",
        (WITNESS + "test_what_does_not_continue_the_past_is_refused_and_changes_nothing",),
    ),
    Mutant(
        "cosign a second tree of one size",
        "tools/witness/witness.py",
        "submission.old_size != size or (head.size == size and head.root != root)",
        "submission.old_size != size",
        (WITNESS + "test_what_does_not_continue_the_past_is_refused_and_changes_nothing",),
    ),
    Mutant(
        "monitor a log that went back",
        "tools/witness/monitor.py",
        "if head.size < before.size:",
        "if False:",
        (WITNESS + "test_a_monitor_alarms_on_loss_on_a_fork_and_on_a_strange_key",),
    ),
    Mutant(
        "hold a receipt against the log without a consistency proof",
        "tools/cli/audit/check.py",
        "        merkle.verify_consistency(old.size, new.size, old.root, new.root, proof)\n",
        "        pass\n",
        ("tests/contract/test_audit_guards.py::test_an_old_receipt_tells_that_the_log_was_put_back[longer]",),
    ),
    Mutant(
        "publish the checkpoint before the tiles",
        "services/audit/publishing.py",
        "        size, written = head.tree.size, 0\n",
        "        size, written = head.tree.size, 0\n        _write(self._folder / CHECKPOINT, head.note)\n",
        ("tests/crash/test_audit_power_cut.py::test_no_power_cut_leaves_a_published_checkpoint_without_its_tiles",),
    ),
    Mutant(
        "forget the salt in a commitment",
        "libs/evidence/commitment.py",
        "self._hash = hashlib.sha256(salt)",
        "self._hash = hashlib.sha256()",
        ("tests/unit/evidence/test_commitment.py",),
    ),
    Mutant(
        "verify no signature",
        "libs/evidence/note.py",
        "            key.verify(signature.blob, text.encode())\n",
        "            pass\n",
        ("tests/unit/evidence/test_note.py", "tests/unit/evidence/test_receipt.py"),
    ),
    Mutant(
        "accept a path that leads to another root",
        "libs/evidence/merkle.py",
        "    if digest != root_hash:\n",
        "    if False:\n",
        ("tests/unit/evidence/test_merkle.py", "tests/unit/evidence/test_receipt.py"),
    ),
)  # fmt: skip
