"""The pack's layout: which member holds what. The same content gives the same bytes: fixed order, times and modes."""

import io
import json
import zipfile
from collections.abc import Mapping
from pathlib import Path

from affidavit.libs.evidence.record import parse_leaf
from affidavit.libs.evidence.tlogproof import proof_text
from affidavit.tools.auditpack.collect import Collected
from affidavit.tools.auditpack.models import ModelFiles

HERE = Path(__file__).parent
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the earliest time that a zip can say


def pack_members(collected: Collected, log_pub: bytes, models: ModelFiles, result: bytes) -> dict[str, bytes]:
    """The zip's members by name.

    Args:
        log_pub: the log's public key, PEM.
        result: the answer's exact bytes.
    """
    receipt = collected.receipt
    leaf = parse_leaf(receipt.leaf)
    paths = {"record.json": (receipt.index, tuple(receipt.inclusion_proof.hashes))}
    members = {"record.json": receipt.leaf}
    if collected.environment:
        members["hardware.json"] = collected.environment.data
        paths["hardware.json"] = (collected.environment.leaf.index, collected.environment.path)
    for rotation, handover in zip(collected.rotations, collected.handovers, strict=True):
        name = f"log.keys/{rotation.leaf.index}"
        members |= {f"{name}.json": rotation.data, f"{name}.checkpoint": handover.checkpoint}
        paths[f"{name}.json"] = (rotation.leaf.index, rotation.path)
    for child in collected.children:
        name = f"children/{child.leaf.index}.json"
        members[name] = child.data
        paths[name] = (child.leaf.index, child.path)
    proofs = {n: {"hashes": [h.hex() for h in hashes], "index": i} for n, (i, hashes) in paths.items()}
    members |= {
        "proof.json": proof_json({"proofs": proofs, "tree_size": receipt.inclusion_proof.tree_size, "v": 1}),
        "record.tlog-proof": proof_text(receipt.index, receipt.inclusion_proof.hashes, receipt.checkpoint.note),
        "checkpoint": receipt.checkpoint.note,
        "log.pub": log_pub,
        "salt.bin": receipt.salt,
        "result.json": result,
        "output_hash.txt": (leaf.output_commitment or b"").hex().encode() + b"\n",
        "input_hash.txt": (leaf.input_commitment or b"").hex().encode() + b"\n",
        "verify.py": (HERE / "verify.py").read_bytes(),
        "README.txt": (HERE / "README.txt").read_bytes(),
    }
    if collected.timestamp:
        members["timestamp.cert"] = collected.timestamp.response
    return members | models.files


def proof_json(value: object) -> bytes:
    """The one form of proof.json, so that a changed file cannot read the same."""
    return (json.dumps(value, indent=1, sort_keys=True) + "\n").encode()


def zip_bytes(members: Mapping[str, bytes]) -> bytes:
    """Members in order of name, not compressed: no library's version shows in the bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(members):
            info = zipfile.ZipInfo(name, _EPOCH)
            info.create_system, info.external_attr = 3, 0o100644 << 16
            archive.writestr(info, members[name])
    return buffer.getvalue()
