"""verify.py follows the log's key over its rotations, from whichever of its keys the auditor trusts."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from affidavit.evidence.v1 import evidence_pb2
from affidavit.libs.evidence.keys import public_pem
from affidavit.libs.evidence.keysource import KeySource
from affidavit.libs.evidence.logkeys import LogKeys
from affidavit.services.audit.append_stream import entry_of, receipt
from affidavit.services.audit.handovers import handovers
from affidavit.services.audit.log import EvidenceLog
from affidavit.services.audit.opening import LogFolders
from affidavit.services.audit.rotate import rotate
from affidavit.tools.auditpack.archive import pack_members
from affidavit.tools.auditpack.collect import Collected, ProvedLeaf
from tests.contract.audit_process import item, result_of
from tests.unit.auditpack.test_verify import BUNDLE, judge, models_of


def packed(home: Path, rotations: int) -> tuple[dict[str, bytes], list[bytes]]:
    """A pack of record 0 as of a checkpoint after so many rotations; the log's public keys, oldest first."""
    folders = LogFolders.below(home)
    pems: list[bytes] = []
    for number in range(rotations + 1):
        if number:
            rotate(folders, KeySource())
        log = EvidenceLog(folders)
        log.append([entry_of(item(f"r{number}-{n}", bundle=BUNDLE)) for n in range(3)])
        pems.append(public_pem(LogKeys.read(folders.keys).current))
        found, proven = handovers(log), log.record(0)
        proved = [log.record(int(h.verify()[0])) for h in found]
        log.close()
    collected = Collected(
        receipt(proven), None, (), None, tuple(found), tuple(ProvedLeaf(p.leaf, tuple(p.path)) for p in proved)
    )
    return pack_members(collected, pems[-1], models_of(frozenset()), result_of("r0-0")), pems


@pytest.fixture(scope="module")
def rotated(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, bytes], list[bytes]]:
    return packed(tmp_path_factory.mktemp("rotated") / "home", 2)


def test_every_key_of_the_log_leads_to_the_one_that_signed(
    rotated: tuple[dict[str, bytes], list[bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack, pems = rotated
    assert evidence_pb2.Receipt().index == 0
    assert {n for n in pack if n.startswith("log.keys/")} == {
        f"log.keys/{n}.{kind}" for n in (3, 7) for kind in ("json", "checkpoint")
    }
    key = tmp_path / "key.pem"
    for pem in pems:
        key.write_bytes(pem)
        assert judge(tmp_path, pack, "--log-key", str(key), monkeypatch=monkeypatch) == ""
    key.write_bytes(public_pem(Ed25519PrivateKey.generate().public_key()))
    said = judge(tmp_path, pack, "--log-key", str(key), monkeypatch=monkeypatch)
    assert said == "NOT verified: log.pub: not the log's key that you trust, nor one that it handed over to"


def test_a_changed_or_missing_part_of_a_rotation_is_refused(
    rotated: tuple[dict[str, bytes], list[bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack, pems = rotated
    assert judge(tmp_path, pack, monkeypatch=monkeypatch) == ""
    names = [n for n in pack if n.startswith("log.keys/")]
    assert len(names) == 4
    for name in names:
        data = pack[name]
        forged = [data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :], data[:-1]]
        forged += [data + b"\n", b"", pack[names[0] if name != names[0] else names[1]]]
        for one in forged:
            assert judge(tmp_path, pack | {name: one}, monkeypatch=monkeypatch).startswith("NOT verified"), name
        rest = {n: d for n, d in pack.items() if n != name}
        assert judge(tmp_path, rest, monkeypatch=monkeypatch).startswith("NOT verified")
    for name in names:
        if not name.endswith(".checkpoint"):
            continue
        lines = pack[name].decode().splitlines(keepends=True)
        for left in (lines[:-1], [*lines[:-2], lines[-1]]):  # one of the two signatures is not there
            assert judge(tmp_path, pack | {name: "".join(left).encode()}, monkeypatch=monkeypatch).startswith("NOT")
    assert judge(tmp_path, pack | {"log.pub": pems[0]}, monkeypatch=monkeypatch).startswith("NOT verified")
