"""The log against a model of it: keys once, places in order, proofs for all, whatever comes in which groups."""

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence import merkle
from affidavit.libs.evidence.receipt import verify_receipt
from affidavit.libs.evidence.record import parse_leaf
from affidavit.services.audit.append_stream import entry_of, receipt
from affidavit.services.audit.log import EvidenceLog, Proven
from affidavit.services.audit.opening import LogFolders
from tests.contract.audit_process import AuditProcess, item, result_of, salt_of

requests = st.lists(
    st.tuples(st.sampled_from([f"r-{n}" for n in range(12)]), st.sampled_from([b"", b"other"])), max_size=6
)


class LogMachine(RuleBasedStateMachine):
    """Appends groups and reopens; `model` is what the log should hold."""

    @initialize(folder=st.uuids())
    def open(self, folder) -> None:
        self.home = LogMachine.root / str(folder)
        shutil.rmtree(self.home, ignore_errors=True)
        self.log = EvidenceLog(LogFolders.below(self.home))
        self.model: dict[str, tuple[int, bytes]] = {}
        self.leaves: list[bytes] = []
        self.heads = [self.log.head.tree]

    @rule(group=requests)
    def append(self, group: list[tuple[str, bytes]]) -> None:
        outcomes = self.log.append([entry_of(item(request_id, content=content)) for request_id, content in group])
        for (request_id, content), outcome in zip(group, outcomes, strict=True):
            known = self.model.setdefault(request_id, (len(self.model), content))
            if known[1] != content:
                assert isinstance(outcome, AffidavitError)
                assert outcome.reason == "IDEMPOTENCY_CONFLICT"
                continue
            assert isinstance(outcome, Proven)
            assert outcome.index == known[0]
            assert outcome.repeated == (outcome.index < len(self.leaves))
            if not outcome.repeated:
                self.leaves.append(outcome.leaf)
            verified = verify_receipt(receipt(outcome), AuditProcess.key_of(self.home), result=result_of(request_id))
            assert verified.leaf.request_id == request_id
        self.heads.append(self.log.head.tree)

    @rule()
    def reopen(self) -> None:
        self.log.close()
        self.log = EvidenceLog(LogFolders.below(self.home))
        assert self.log.head.tree == self.heads[-1]

    @invariant()
    def every_record_is_at_its_place(self) -> None:
        if not hasattr(self, "log"):
            return
        assert self.log.head.tree.size == len(self.leaves) == len(self.model)
        for index, leaf in enumerate(self.leaves):
            assert self.log.record(index).leaf == leaf

    @invariant()
    def every_head_is_a_beginning_of_the_log(self) -> None:
        if not hasattr(self, "log"):
            return
        hashes = [merkle.leaf_hash(leaf) for leaf in self.leaves]
        for head in self.heads[-3:]:
            frontier = merkle.Frontier()
            for digest in hashes[: head.size]:
                frontier.append(digest)
            assert frontier.root() == head.root

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close()
            shutil.rmtree(self.home)


def test_the_log_does_what_its_model_does(tmp_path) -> None:
    LogMachine.root = tmp_path
    health = [HealthCheck.too_slow, HealthCheck.data_too_large]
    LogMachine.TestCase.settings = settings(
        max_examples=6, stateful_step_count=10, deadline=None, suppress_health_check=health
    )
    LogMachine.TestCase("runTest").runTest()


@pytest.fixture
def home(tmp_path) -> Path:
    return tmp_path / "home"


def opened(home: Path) -> EvidenceLog:
    return EvidenceLog(LogFolders.below(home))


def entries(*request_ids: str):
    return [entry_of(item(request_id)) for request_id in request_ids]


def test_a_head_that_cannot_be_written_ends_appending_until_it_can(home) -> None:
    log = opened(home)
    first = log.append(entries("r-0"))[0]
    assert isinstance(first, Proven)
    head = home / "audit" / "head" / "checkpoint"
    head.rename(home / "taken")
    with pytest.raises(AffidavitError, match="takes no more records") as caught:
        log.append(entries("r-1"))
    assert caught.value.reason == "LOG_UNAVAILABLE"
    for _ in range(2):
        with pytest.raises(AffidavitError, match="takes no more records"):
            log.append(entries("r-2"))
        with pytest.raises(AffidavitError, match="takes no more records"):
            log.touch(1)
    assert log.record(0).leaf == first.leaf
    with pytest.raises(AffidavitError, match="no record 1"):  # in the store, but nobody was told of it
        log.record(1)
    with pytest.raises(AffidavitError, match=r"the signed head in .* is missing"):
        log.reopen()
    (home / "taken").rename(head)
    log.reopen()
    log.touch(2)
    again, new = log.append(entries("r-1", "r-2"))
    assert isinstance(again, Proven)
    assert isinstance(new, Proven)
    assert (again.index, again.repeated, new.index, new.repeated) == (1, True, 2, False)
    assert again.salt == salt_of("r-1")
    log.close()


def test_a_failed_store_write_is_never_tried_again_on_the_same_store(home, monkeypatch) -> None:
    log = opened(home)
    log.append(entries("r-0"))
    writes: list[int] = []

    def fail(*_args: object) -> None:
        writes.append(1)
        raise AffidavitError("LOG_UNAVAILABLE", "input/output error")

    monkeypatch.setattr(log._open.store, "commit", fail)
    for _ in range(3):
        with pytest.raises(AffidavitError, match="input/output error"):
            log.append(entries("r-1"))
    assert writes == [1]
    log.reopen()  # another store, opened anew
    assert isinstance(log.append(entries("r-1"))[0], Proven)
    log.close()


def test_a_first_start_that_was_cut_short_goes_on(home) -> None:
    log = opened(home)
    origin = log.head.tree.origin
    log.close()
    (home / "audit" / "head" / "checkpoint").unlink()  # cut before the first head: the store keeps the name
    log = opened(home)
    assert log.head.tree.origin == origin
    log.close()
    shutil.rmtree(home / "audit" / "store")  # a head over nothing: no record can be missing
    (home / "audit" / "store.new").mkdir()
    (home / "audit" / "store.new" / "half").write_text("built")
    log = opened(home)
    assert log.head.tree.origin == origin
    assert isinstance(log.append(entries("r-0"))[0], Proven)
    log.close()


def test_a_key_alone_is_used_for_the_new_log(home) -> None:
    opened(home).close()
    key = (home / "keys" / "log.key").read_bytes()
    shutil.rmtree(home / "audit")
    opened(home).close()
    assert (home / "keys" / "log.key").read_bytes() == key


def test_a_store_of_another_format_is_refused(home) -> None:
    log = opened(home)
    log._open.store._database._whole[b"v"] = b"2"
    log.close()
    with pytest.raises(AffidavitError, match="format"):
        opened(home)


def test_an_erased_salt_leaves_the_record_and_frees_no_key(home) -> None:
    log = opened(home)
    log.append(entries("r-0"))
    log._open.store._database._families["side"].delete((0).to_bytes(8, "big"))
    assert log.record(0).salt == b""
    (outcome,) = log.append(entries("r-0"))
    assert isinstance(outcome, AffidavitError)
    assert outcome.reason == "IDEMPOTENCY_CONFLICT"
    assert "forgotten" in outcome.message
    log.close()


def test_a_leaf_changed_through_the_store_itself_is_never_served(home) -> None:
    log = opened(home)
    log.append(entries("r-0", "r-1"))
    forged = log.record(0).leaf.replace(b'"ok"', b'"no"')
    log._open.store._database._families["leaf"].put((0).to_bytes(8, "big"), forged)
    with pytest.raises(AffidavitError, match="record 0 is not what was signed"):
        log.record(0)
    assert parse_leaf(log.record(1).leaf).request_id == "r-1"
    log.close()
    with pytest.raises(AffidavitError, match="record 0 is not what was signed"):
        opened(home)
