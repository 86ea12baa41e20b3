"""verify.py accepts a pack as it was made, and no pack in which anything was changed."""

import base64
import contextlib
import hashlib
import io
import json
import os
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from rfc3161_client import HashAlgorithm, TimestampRequestBuilder

from affidavit.evidence.v1 import evidence_pb2
from affidavit.libs.evidence import merkle
from affidavit.libs.evidence.commitment import commit
from affidavit.libs.evidence.cosignature import WitnessKey, cosign
from affidavit.libs.evidence.keys import public_pem
from affidavit.libs.evidence.note import TreeHead, sign_checkpoint
from affidavit.libs.evidence.record import leaf_bytes
from affidavit.libs.models import ModelFolder, default_models_folder
from affidavit.libs.models.signed import SignedModels
from affidavit.services.audit.development_authority import DevelopmentAuthority
from affidavit.tools.auditpack import verify
from affidavit.tools.auditpack.archive import HERE, pack_members, zip_bytes
from affidavit.tools.auditpack.collect import Collected, ProvedLeaf
from affidavit.tools.auditpack.models import ModelFiles, model_files

LOG = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
MODELS = Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))
SALT = bytes(range(50, 82))
RESULT, INPUT = b'{"pages":[]}', b"%PDF-1.7 and so on"
BUNDLE = "document@20261203.1"
GPU = "GPU-3f1b"
CASES = [
    json.loads(line)
    for line in (Path(__file__).parents[3].parent / "shared/data/tlog/merkle_proofs.jsonl").read_text().splitlines()
]


def draft(**fields) -> evidence_pb2.RecordDraft:
    return evidence_pb2.RecordDraft(tenant="default", request_id="r", status="ok", phase=1, **fields)


def models_of(used: frozenset[bytes]) -> ModelFiles:
    with tempfile.TemporaryDirectory() as folder:
        return model_files(default_models_folder(), SignedModels(Path(folder)), BUNDLE, used, lambda: MODELS)


def make_pack() -> dict[str, bytes]:
    """A document of two pages: environment 0, opened 1, pages 2 and 3, closed 4, in a tree of 7."""
    members = ModelFolder(default_models_folder()).bundle("document", BUNDLE).members
    steps = [evidence_pb2.StepEvidence(service="ocr", model_hash=m.model_hash, device_id=GPU) for m in members.values()]
    page = draft(kind=2, parent_index=1, bundle=BUNDLE, steps=steps, environment_index=0)
    closed = draft(
        kind=1,
        bundle=BUNDLE,
        environment_index=0,
        input_commitment=commit(SALT, INPUT),
        output_commitment=commit(SALT, RESULT),
        children=[evidence_pb2.IndexRange(first=2, last=3)],
    )
    drafts = [draft(kind=8, body_json=b'{"cpu":"some cpu"}'), draft(kind=1), page, page, closed, page, page]
    leaves = [leaf_bytes(d, i, datetime(2026, 11, 30, tzinfo=UTC), SALT) for i, d in enumerate(drafts)]
    nodes, frontier = {}, merkle.Frontier()
    for leaf in leaves:
        nodes |= {(level, place): h for level, place, h in frontier.append(merkle.leaf_hash(leaf))}

    def path(index: int) -> tuple[bytes, ...]:
        return tuple(merkle.prove_inclusion(index, len(leaves), lambda level, place: nodes[level, place]))

    note = sign_checkpoint(TreeHead("affidavit.local/test", len(leaves), frontier.root()), LOG)
    receipt = evidence_pb2.Receipt(
        leaf=leaves[4],
        index=4,
        salt=SALT,
        checkpoint=evidence_pb2.Checkpoint(note=note),
        inclusion_proof=evidence_pb2.InclusionProof(leaf_index=4, tree_size=len(leaves), hashes=path(4)),
    )
    related = [ProvedLeaf(leaves[i], path(i)) for i in (0, 2, 3)]
    models = models_of(frozenset(m.model_hash for m in members.values()))
    return pack_members(
        Collected(receipt, related[0], tuple(related[1:])), public_pem(LOG.public_key()), models, RESULT
    )


PACK = make_pack()


def judge(folder: Path, members: dict[str, bytes], *flags: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """What verify.py says of a pack: "" when it accepts it, else which check failed."""
    path = folder / "audit.zip"
    path.write_bytes(zip_bytes(members))
    monkeypatch.setattr(sys, "argv", ["verify.py", str(path), *flags])
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            verify.main()
    except SystemExit as end:
        return str(end.code)
    return ""


def test_verify_is_short_and_runs_alone_in_an_empty_environment(tmp_path: Path) -> None:
    assert len((HERE / "verify.py").read_text().splitlines()) < 250
    (tmp_path / "audit.zip").write_bytes(zip_bytes(PACK))
    (tmp_path / "verify.py").write_bytes(PACK["verify.py"])
    command = [sys.executable, "-I", "-S", "verify.py", "audit.zip"]
    done = subprocess.run(command, cwd=tmp_path, env={"PATH": os.defpath}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "verified: record 4 of affidavit.local/test" in done.stdout
    assert "no timestamp" in done.stdout


def test_the_same_content_gives_the_same_bytes() -> None:
    assert zip_bytes(make_pack()) == zip_bytes(dict(reversed(PACK.items())))


@pytest.mark.parametrize("name", sorted(PACK))
def test_a_changed_missing_or_grown_member_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert judge(tmp_path, PACK, monkeypatch=monkeypatch) == ""
    data = PACK[name]
    places = sorted({0, len(data) // 3, len(data) // 2, len(data) - 2, len(data) - 1})
    forged = [data[:i] + bytes([data[i] ^ 1]) + data[i + 1 :] for i in places] + [data + b"\n", data[:-1], b""]
    for one in forged:
        assert judge(tmp_path, PACK | {name: one}, monkeypatch=monkeypatch).startswith("NOT verified"), one
    without = {n: d for n, d in PACK.items() if n != name}
    assert judge(tmp_path, without, monkeypatch=monkeypatch).startswith("NOT verified")


WITNESS, OTHER_WITNESS = (Ed25519PrivateKey.from_private_bytes(bytes([n] * 32)) for n in (7, 8))
WITNESS_KEY, OTHER_KEY = (
    WitnessKey(name, key.public_key()).text()
    for name, key in (("witness.example/w1", WITNESS), ("witness.example/w2", OTHER_WITNESS))
)


def cosigned(time: int = 1_764_547_200) -> dict[str, bytes]:
    """The pack with one witness's cosignature in its checkpoint."""
    note = PACK["checkpoint"]
    text = note.decode().partition("\n\n")[0] + "\n"
    more = note + cosign(text, "witness.example/w1", WITNESS, time).line().encode()
    tlog_proof = PACK["record.tlog-proof"].removesuffix(note) + more
    return PACK | {"checkpoint": more, "record.tlog-proof": tlog_proof}


def test_a_witnesss_cosignature_is_checked_when_its_key_is_given_and_counted_when_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pack = cosigned()
    assert judge(tmp_path, pack, monkeypatch=monkeypatch) == ""
    assert judge(tmp_path, pack, "--witness", WITNESS_KEY, monkeypatch=monkeypatch) == ""
    (tmp_path / "audit.zip").write_bytes(zip_bytes(pack))
    for flags, said in (([], "0 checked, 1 NOT checked"), (["--witness", WITNESS_KEY], "1 checked, 0 NOT checked")):
        command = [sys.executable, "-I", str(HERE / "verify.py"), str(tmp_path / "audit.zip"), *flags]
        assert said in subprocess.run(command, capture_output=True, text=True).stdout


def test_a_cosignature_that_is_missing_or_of_another_time_or_text_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def said(pack: dict[str, bytes], *keys: str) -> str:
        return judge(tmp_path, pack, *(flag for key in keys for flag in ("--witness", key)), monkeypatch=monkeypatch)

    pack = cosigned()
    assert said(pack, WITNESS_KEY) == ""
    assert "not cosigned by witness.example/w1" in said(PACK, WITNESS_KEY)
    assert "not cosigned by witness.example/w2" in said(pack, WITNESS_KEY, OTHER_KEY)
    line = pack["checkpoint"].splitlines()[-1]
    blob = base64.b64decode(line.split()[-1])
    for place in (4, 11, 12, len(blob) - 1):  # its time, its signature
        changed = blob[:place] + bytes([blob[place] ^ 1]) + blob[place + 1 :]
        forged = {n: d.replace(base64.b64encode(blob), base64.b64encode(changed)) for n, d in pack.items()}
        assert "cosignature of witness.example/w1" in said(forged, WITNESS_KEY)
    assert "no witness's Ed25519 key" in said(pack, WITNESS_KEY[:-4] + "AAA=")


async def test_a_timestamp_is_checked_against_the_authority_that_the_auditor_trusts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = DevelopmentAuthority(tmp_path / "mine")
    DevelopmentAuthority(tmp_path / "other")

    async def stamp(data: bytes) -> dict[str, bytes]:
        query = TimestampRequestBuilder().data(data).hash_algorithm(HashAlgorithm.SHA256).build()
        return PACK | {"timestamp.cert": await mine.answer(query.as_bytes())}

    good, ca = await stamp(PACK["checkpoint"]), str(tmp_path / "mine" / "ca.pem")
    path = tmp_path / "good.zip"
    path.write_bytes(zip_bytes(good))
    for flags, words in (((), "there is one, NOT checked"), (("--tsa-ca", ca), "over this checkpoint, checked: ")):
        monkeypatch.setattr(sys, "argv", ["verify.py", str(path), *flags])
        verify.main()
        (line,) = [line for line in capsys.readouterr().out.splitlines() if "timestamp" in line]
        assert words in line
    assert datetime.strptime(line.rpartition("checked: ")[2], "%b %d %H:%M:%S %Y GMT").year >= 2026
    refused = "NOT verified: timestamp.cert: openssl refuses it"
    assert judge(tmp_path, good, "--tsa-ca", str(tmp_path / "other" / "ca.pem"), monkeypatch=monkeypatch) == refused
    elsewhere = await stamp(PACK["checkpoint"] + b"\n")
    assert judge(tmp_path, elsewhere, "--tsa-ca", ca, monkeypatch=monkeypatch) == refused
    token = good["timestamp.cert"]
    imprint = token.index(hashlib.sha256(PACK["checkpoint"]).digest())
    for place in (0, imprint, len(token) // 2, len(token) - 1):
        forged = token[:place] + bytes([token[place] ^ 1]) + token[place + 1 :]
        assert judge(tmp_path, good | {"timestamp.cert": forged}, "--tsa-ca", ca, monkeypatch=monkeypatch) == refused


def test_every_field_of_every_record_and_proof_is_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert judge(tmp_path, PACK, monkeypatch=monkeypatch) == ""
    count = 0
    for name in ("record.json", "hardware.json", "children/2.json"):
        record = json.loads(PACK[name])
        for field in record:
            text = json.dumps(record | {field: "other"}, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
            assert judge(tmp_path, PACK | {name: text.encode()}, monkeypatch=monkeypatch).startswith("NOT"), field
            count += 1
    proof = json.loads(PACK["proof.json"])
    for name, entry in proof["proofs"].items():
        for change in ({"index": entry["index"] + 1}, {"hashes": entry["hashes"][::-1]}, {"hashes": []}):
            other = proof | {"proofs": proof["proofs"] | {name: entry | change}}
            text = json.dumps(other, indent=1, sort_keys=True) + "\n"
            assert judge(tmp_path, PACK | {"proof.json": text.encode()}, monkeypatch=monkeypatch).startswith("NOT")
            count += 1
    assert count == 20 + 20 + 19 + 12


def test_devices_inputs_and_keys_that_are_not_the_trusted_ones_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed, given, key = tmp_path / "devices", tmp_path / "input", tmp_path / "key"
    listed.write_text(GPU + "\n")
    given.write_bytes(INPUT)
    key.write_bytes(PACK["log.pub"])
    flags = ["--allowed-devices", str(listed), "--input", str(given), "--log-key", str(key)]
    assert judge(tmp_path, PACK, *flags, monkeypatch=monkeypatch) == ""
    listed.write_text("some cpu\n")
    assert f"device: {GPU} is not on the list" in judge(tmp_path, PACK, *flags[:2], monkeypatch=monkeypatch)
    given.write_bytes(INPUT + b"\n")
    assert "not the input that was read" in judge(tmp_path, PACK, *flags[2:4], monkeypatch=monkeypatch)
    key.write_bytes(PACK["model.pub"])
    assert "log.pub" in judge(tmp_path, PACK, *flags[4:], monkeypatch=monkeypatch)


def test_inclusion_proofs_that_others_wrote_are_judged_right() -> None:
    judged = 0
    for case in (c for c in CASES if c["kind"] in ("inclusion", "subtreeinclusion")):
        begin, end = case.get("start", 0), case.get("end", case.get("treeSize"))
        path = [base64.b64decode(h) for h in case["proof"] or []]
        leaf, root = (base64.b64decode(case[n] or "") for n in ("leafHash", "root"))
        try:
            verify.check_inclusion(case["leafIdx"] - begin, end - begin, leaf, path, root)
            wrong = False
        except verify.Failed:
            wrong = True
        assert wrong == case["wantErr"], case["name"]
        judged += 1
    assert judged == sum("inclusion" in c["kind"] for c in CASES) > 100
