"""A witness cosigns what continues its past, and nothing else; a monitor tells what does not."""

import base64
import subprocess

import pytest
from aiohttp.test_utils import TestClient, TestServer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from affidavit.libs.evidence import merkle
from affidavit.libs.evidence.cosignature import WitnessKey, cosignatures
from affidavit.libs.evidence.keys import public_pem
from affidavit.libs.evidence.merkle import Frontier, leaf_hash
from affidavit.libs.evidence.note import NoteError, TreeHead, Verifier, sign_checkpoint, split_note
from affidavit.libs.evidence.submission import SIZE_TYPE, Submission
from affidavit.tools.witness.monitor import Monitor, NotAppendOnly
from affidavit.tools.witness.server import application
from affidavit.tools.witness.witness import StateHeld, Status, Witness

ORIGIN = "log.example/one"
NAME = "witness.example/w1"
TIME = 1_800_000_000
KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
LOG = Verifier(ORIGIN, KEY.public_key())


class Tree:
    """A log in memory, whose leaves from `fork` on are others."""

    def __init__(self, fork: int = 1 << 30) -> None:
        self._fork = fork

    def _nodes(self, size: int) -> tuple[Frontier, dict[tuple[int, int], bytes]]:
        frontier, nodes = Frontier(), {}
        for index in range(size):
            leaf = b"%d" % index if index < self._fork else b"other %d" % index
            for level, number, digest in frontier.append(leaf_hash(leaf)):
                nodes[level, number] = digest
        return frontier, nodes

    def note(self, size: int, key: Ed25519PrivateKey = KEY, origin: str = ORIGIN) -> bytes:
        return sign_checkpoint(TreeHead(origin, size, self._nodes(size)[0].root()), key)

    def proof(self, first: int, second: int) -> list[bytes]:
        if not 0 < first < second:
            return []
        _, nodes = self._nodes(second)
        return merkle.prove_consistency(first, second, lambda level, number: nodes[level, number])

    def body(self, first: int, second: int) -> bytes:
        return Submission(first, self.proof(first, second), self.note(second)).body()

    async def prove(self, first: int, second: int) -> list[bytes]:
        return self.proof(first, second)


@pytest.fixture
def witness(tmp_path):
    made = Witness(tmp_path / "state", NAME, [LOG], now=lambda: TIME)
    yield made
    made.close()


def test_it_cosigns_a_growing_log_and_remembers_across_a_restart(tmp_path, witness) -> None:
    tree = Tree()
    for first, second in ((0, 3), (3, 3), (3, 8), (8, 21)):
        answer = witness.add_checkpoint(tree.body(first, second))
        assert answer.status == Status.COSIGNED, answer.text
        note = tree.note(second) + answer.text.encode()
        (cosigned,) = cosignatures(*split_note(note), [witness.verifier])
        assert (cosigned.name, cosigned.time) == (NAME, TIME)
    key = witness.verifier
    witness.close()
    again = Witness(tmp_path / "state", NAME, [LOG])
    assert again.verifier == key
    assert again.newest(ORIGIN).size == 21
    assert again.add_checkpoint(tree.body(8, 21)) == (Status.CONFLICT, "21\n", 21)
    assert again.add_checkpoint(tree.body(21, 22)).status == Status.COSIGNED


def test_openssl_verifies_a_cosignature_over_the_message_of_the_specification(tmp_path, witness) -> None:
    note = Tree().note(5)
    line = witness.add_checkpoint(Submission(0, [], note).body()).text
    blob = base64.b64decode(line.rsplit(" ", 1)[1])
    assert (len(blob), blob[4:12]) == (76, TIME.to_bytes(8, "big"))
    (tmp_path / "pub").write_bytes(public_pem(witness.verifier.key))
    (tmp_path / "sig").write_bytes(blob[12:])
    message = f"cosignature/v1\ntime {TIME}\n".encode() + note.partition(b"\n\n")[0] + b"\n"
    (tmp_path / "message").write_bytes(message)
    command = [
        "openssl",
        "pkeyutl",
        "-verify",
        "-rawin",
        "-pubin",
        "-inkey",
        "pub",
        "-sigfile",
        "sig",
        "-in",
        "message",
    ]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode == 0
    (tmp_path / "message").write_bytes(message.replace(b"time 18", b"time 19"))
    assert subprocess.run(command, cwd=tmp_path, capture_output=True, check=False).returncode != 0


def test_what_does_not_continue_the_past_is_refused_and_changes_nothing(witness) -> None:
    tree = Tree()
    assert witness.add_checkpoint(tree.body(0, 8)).status == Status.COSIGNED
    other = Ed25519PrivateKey.generate()
    good = tree.body(8, 12)
    cases = {
        "a fork of the same size": (Tree(fork=4).body(8, 8), Status.CONFLICT),
        "a longer fork": (Tree(fork=4).body(8, 12), Status.INCONSISTENT),
        "a log restored from earlier": (tree.body(5, 6), Status.CONFLICT),
        "a log begun anew": (tree.body(0, 12), Status.CONFLICT),
        "a shorter tree": (Submission(8, [], tree.note(7)).body(), Status.MALFORMED),
        "a missing hash": (Submission(8, tree.proof(8, 12)[:-1], tree.note(12)).body(), Status.INCONSISTENT),
        "a hash too many": (Submission(8, [bytes(32)], tree.note(8)).body(), Status.INCONSISTENT),
        "another key": (Submission(8, tree.proof(8, 12), tree.note(12, other)).body(), Status.UNTRUSTED),
        "another log": (Submission(8, [], tree.note(12, KEY, "log.example/two")).body(), Status.UNKNOWN_LOG),
        "no old line": (good.replace(b"old 8\n", b""), Status.MALFORMED),
        "a leading zero": (good.replace(b"old 8\n", b"old 08\n"), Status.MALFORMED),
        "64 proof lines": (Submission(8, [bytes(32)] * 64, tree.note(12)).body(), Status.MALFORMED),
        "no checkpoint": (b"old 8\n\n", Status.MALFORMED),
    }
    for what, (body, status) in cases.items():
        answer = witness.add_checkpoint(body)
        assert answer.status == status, (what, answer)
        assert "\u2014" not in answer.text, what
        assert witness.newest(ORIGIN).size == 8, what
    assert witness.add_checkpoint(good).status == Status.COSIGNED


def test_a_damaged_memory_is_never_taken_for_an_empty_one(tmp_path, witness) -> None:
    assert witness.add_checkpoint(Tree().body(0, 8)).status == Status.COSIGNED
    (path,) = (tmp_path / "state" / "seen").iterdir()
    path.write_bytes(path.read_bytes().replace(b"\n8\n", b"\n1\n"))
    with pytest.raises(NoteError):
        witness.add_checkpoint(Tree(fork=0).body(0, 8))


def test_a_checkpoint_that_cannot_be_kept_is_not_cosigned(tmp_path, witness, monkeypatch) -> None:
    def full(*_) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("affidavit.tools.witness.witness.replace_file", full)
        with pytest.raises(OSError, match="No space"):
            witness.add_checkpoint(Tree().body(0, 8))
    assert witness.newest(ORIGIN) is None
    assert witness.add_checkpoint(Tree(fork=2).body(0, 8)).status == Status.COSIGNED


def test_two_witnesses_never_share_a_state(tmp_path, witness) -> None:
    with pytest.raises(StateHeld, match="stop it first"):
        Witness(tmp_path / "state", NAME, [LOG])


def test_a_witness_key_reads_back_and_a_logs_key_is_no_witness_key(witness) -> None:
    assert WitnessKey.parse(witness.verifier.text()) == witness.verifier
    with pytest.raises(NoteError):
        WitnessKey.parse(LOG.text())


async def test_over_http_statuses_and_types_are_those_of_the_specification(witness) -> None:
    async with TestClient(TestServer(application(witness))) as client:
        async with client.post("/add-checkpoint", data=Tree().body(0, 8)) as answer:
            assert (answer.status, (await answer.text())[:1]) == (200, "\u2014")
        async with client.post("/add-checkpoint", data=Tree().body(0, 9)) as answer:
            assert (answer.status, answer.content_type, await answer.text()) == (409, SIZE_TYPE, "8\n")
        async with client.post("/add-checkpoint", data=Tree(fork=4).body(8, 9)) as answer:
            assert answer.status == 422
        async with client.get("/add-checkpoint") as answer:
            assert answer.status == 405


async def test_a_monitor_alarms_on_loss_on_a_fork_and_on_a_strange_key(tmp_path) -> None:
    tree, fork = Tree(), Tree(fork=4)
    cases = {
        "went back from 8 to 6": (tree.note(6), tree),
        "two trees of 8": (fork.note(8), fork),
        "does not continue": (fork.note(12), fork),
        "no known key": (tree.note(12, Ed25519PrivateKey.generate()), tree),
    }
    for number, (words, (note, answering)) in enumerate(cases.items()):
        folder = tmp_path / str(number)
        for size in (3, 8, 8):
            assert (await Monitor(folder, LOG).see(tree.note(size), tree.prove)).size == size
        with pytest.raises(NotAppendOnly, match=words):
            await Monitor(folder, LOG).see(note, answering.prove)
        assert (folder / "alarm").read_bytes() == note
        assert (folder / "newest").read_bytes() == tree.note(8)
