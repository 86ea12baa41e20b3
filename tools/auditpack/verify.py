#!/usr/bin/env python3
# fmt: off
# pyright: basic
"""Verify an audit pack offline: python3 -I verify.py [audit.zip or its unpacked folder] [options]

Needs Python 3.11 and the openssl command (3.0 or newer), no network. From RFC 6962 and RFC 9162 (Merkle tree), RFC 8032
and RFC 3161 (signatures and timestamps, by openssl), C2SP signed-note, tlog-checkpoint, tlog-cosignature and tlog-proof.
Exit code 0: every check that could be made holds. 1: one failed; it is named.
"""

import argparse, base64, hashlib, json, re, subprocess, sys, tempfile, zipfile  # noqa: E401, I001
from pathlib import Path

REQUIRED = {
    "README.txt", "checkpoint", "input_hash.txt", "log.pub", "model.manifest", "model.pub", "model.sig", "output_hash.txt",
    "proof.json", "record.json", "record.tlog-proof", "result.json", "salt.bin", "verify.py",
}
OPTIONAL = {"hardware.json", "timestamp.cert"}
README_SHA256 = "563d6c26120f9b207621785fc84c0fa364f0e778cce21c5ea88d17c1c50d4502"
FOLDERS = re.compile(
    r"(children|log\.keys)/(0|[1-9][0-9]*)\.json|log\.keys/[0-9]+\.checkpoint|models/[\w.-]+/[\w.-]+/model\.(yaml|manifest)"
)
ED25519_DER = bytes.fromhex("302a300506032b6570032100")  # SubjectPublicKeyInfo of Ed25519 (RFC 8410), before the key

class Failed(Exception): """A check does not hold."""  # noqa: E701

def need(condition, message):
    if not condition: raise Failed(message)  # noqa: E701

def leaf_hash(leaf): return hashlib.sha256(b"\0" + leaf).digest()
def node_hash(left, right): return hashlib.sha256(b"\1" + left + right).digest()

def check_inclusion(index, size, leaf, path, root, name="inclusion"):
    """RFC 9162 2.1.3.2: the path leads from the leaf hash at `index` to the root of a tree of `size` leaves.
    Returns the root of the tree that ends with this leaf: the siblings left of it are its only other parts."""
    need(0 <= index < size and len(leaf) == len(root) == 32, f"{name}: outside the tree, or no hash of 32 bytes")
    fn, sn, r, ended = index, size - 1, leaf, leaf
    for p in path:
        need(len(p) == 32 and sn > 0, f"{name}: a hash has not 32 bytes, or the path is too long")
        if fn & 1 or fn == sn:
            r, ended = node_hash(p, r), node_hash(p, ended)
            while not fn & 1 and fn:
                fn, sn = fn >> 1, sn >> 1
        else:
            r = node_hash(r, p)
        fn, sn = fn >> 1, sn >> 1
    need(sn == 0 and r == root, f"{name}: the path is too short, or leads to another root")
    return ended

def pem_of(raw): return b"-----BEGIN PUBLIC KEY-----\n" + base64.b64encode(ED25519_DER + raw) + b"\n-----END PUBLIC KEY-----\n"

def raw_key(pem, name):
    """The 32 bytes of an Ed25519 public key in the one PEM form that openssl writes."""
    raw = base64.b64decode(b"".join(pem.split(b"\n")[1:-2]), validate=True)[12:]
    need(pem == pem_of(raw) and len(raw) == 32, f"{name}: no Ed25519 public key in PEM")
    return raw

def openssl(files, command):
    """What openssl prints, in a folder of these files; None when it says no."""
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            Path(folder, name).write_bytes(content)
        done = subprocess.run(["openssl", *command.split()], cwd=folder, capture_output=True)
    return None if done.returncode else done.stdout.decode(errors="replace")

def check_signature(pem, data, signature, what):
    said = openssl({"k": pem, "data": data, "sig": signature}, "pkeyutl -verify -rawin -pubin -inkey k -in data -sigfile sig")
    need(said is not None, f"{what}: openssl says the signature is wrong")

def witness_key(text):
    """((name, key id), PEM) of a witness's verifier key, NAME+ID+BASE64."""
    name, key_id, key = text.split("+", 2)
    blob = base64.b64decode(key, validate=True)
    named = hashlib.sha256(name.encode() + b"\n" + blob).hexdigest()[:8]
    need(len(blob) == 33 and blob[0] == 4 and named == key_id, f"--witness {text}: no witness's Ed25519 key")
    return (name, bytes.fromhex(key_id)), pem_of(blob[1:])

def open_checkpoint(note, pem, witnesses=()):
    """Origin, size, root of a checkpoint that the log's key signed; its `witnesses` (by name and key id), and how many other
    signatures there are, which nobody checked."""
    text, gap, rest = note.partition(b"\n\n")
    text, lines = text + b"\n", rest.decode().split("\n")
    need(gap and lines.pop() == "" and lines, "checkpoint: no signed note")
    origin, size, root = text.decode().split("\n")[:3]
    need(re.fullmatch("0|[1-9][0-9]*", size, re.A), "checkpoint: the size is no number")
    key_id = hashlib.sha256(origin.encode() + b"\n\x01" + raw_key(pem, "log.pub")).digest()[:4]
    signed, seen = 0, []
    for line in lines:
        found = re.fullmatch(r"— (\S+) ([A-Za-z0-9+/]+=*)", line)
        if not found: raise Failed("checkpoint: a line is no signature")  # noqa: E701
        blob = base64.b64decode(found[2])
        need(base64.b64encode(blob).decode() == found[2], "checkpoint: a signature is not in its one base64 form")
        who = found[1], blob[:4]
        if who == (origin, key_id):
            check_signature(pem, text, blob[4:], "checkpoint")
            signed += 1
        elif who in witnesses:
            said = b"cosignature/v1\ntime %d\n" % int.from_bytes(blob[4:12], "big") + text
            check_signature(witnesses[who], said, blob[12:], f"checkpoint: cosignature of {found[1]}")
            seen.append(who)
    need(signed == 1, "checkpoint: not signed by the log's key")
    return origin, int(size), base64.b64decode(root, validate=True), seen, len(lines) - signed - len(seen)

def read_pack(path):
    if path.is_dir():
        return {p.relative_to(path).as_posix(): p.read_bytes() for p in path.rglob("*") if p.is_file()}
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        need(len(names) == len(set(names)), "pack: a name is there twice")
        return {name: archive.read(name) for name in names}

def check_form(pack):
    missing = REQUIRED - pack.keys()
    need(not missing, f"pack: {', '.join(sorted(missing))} missing")
    other = [n for n in pack if n not in REQUIRED | OPTIONAL and not FOLDERS.fullmatch(n)]
    need(not other, f"pack: {', '.join(other)} does not belong here")
    need(hashlib.sha256(pack["README.txt"]).hexdigest() == README_SHA256, "README.txt: not the one of this verify.py")
    need(pack["verify.py"] == Path(__file__).read_bytes(), "verify.py: not the program that is running")

def check_proofs(pack, witnesses):
    """Every leaf of the pack is in the log, at its index, as of one signed checkpoint."""
    proof = json.loads(pack["proof.json"])
    same = (json.dumps(proof, indent=1, sort_keys=True) + "\n").encode() == pack["proof.json"]
    need(same and proof.keys() == {"proofs", "tree_size", "v"} and proof["v"] == 1, "proof.json: not in its one form")
    origin, size, root, seen, others = open_checkpoint(pack["checkpoint"], pack["log.pub"], witnesses)
    need({*seen} == {*witnesses}, f"checkpoint: not cosigned by {', '.join(name for name, _ in {*witnesses} - {*seen})}")
    need(proof["tree_size"] == size, "proof.json: of another tree than the checkpoint's")
    leaves = {n for n in pack if re.fullmatch(r"(record|hardware|(children|log\.keys)/[0-9]+)\.json", n)}
    need(proof["proofs"].keys() == leaves, "proof.json: does not prove just the leaves that are here")
    records, ended = {}, {}
    for name in sorted(leaves):
        entry, record = proof["proofs"][name], json.loads(pack[name])
        need(record["v"] == 1 and record["index"] == str(entry["index"]), f"{name}: says another index than its proof")
        path, records[name] = [bytes.fromhex(h) for h in entry["hashes"]], record
        ended[name] = check_inclusion(entry["index"], size, leaf_hash(pack[name]), path, root, name)
    lines = [base64.b64encode(bytes.fromhex(h)).decode() for h in proof["proofs"]["record.json"]["hashes"]]
    text = "\n".join(["c2sp.org/tlog-proof@v1", f"index {records['record.json']['index']}", *lines, "", ""]).encode()
    need(pack["record.tlog-proof"] == text + pack["checkpoint"], "record.tlog-proof: not what proof.json says")
    return records, origin, size, (len(seen), others), check_rotations(pack, records, ended, origin)

def check_rotations(pack, records, ended, origin):
    """The log's keys, oldest first: at each rotation, both keys signed the checkpoint that ends with the record of it."""
    keys, names = [], sorted((n for n in records if n.startswith("log.keys/")), key=lambda n: int(n[9:-5]))
    notes = [n[:-4] + "checkpoint" for n in names]
    need({*notes} == {n for n in pack if n.endswith(".checkpoint")}, "log.keys: a record or a checkpoint is missing")
    for name, note in zip(names, notes, strict=True):
        body = records[name]["body"]
        old, new = (body[which]["pem"].encode() for which in ("old", "new"))
        need(body["event"] == "log_key_rotation" and old != new, f"{name}: no rotation")
        need(not keys or keys[-1] == old, f"{name}: hands over another key than the log had")
        for key in (old, new):
            said = open_checkpoint(pack[note], key)[:3]
            need(said == (origin, int(name[9:-5]) + 1, ended[name]), f"{name}: its checkpoint is not of this log's beginning")
        keys = [*(keys or [old]), new]
    need(not keys or keys[-1] == pack["log.pub"], "log.pub: not the key that the last rotation names")
    return keys or [pack["log.pub"]]

def check_children(records):
    """A closing record names the records that it closes over: all are here, and no other."""
    waiting, found = [records["record.json"]], set()
    while waiting:
        for text in waiting.pop().get("children", []):
            first, _, last = text.partition("-")
            for index in range(int(first), int(last or first) + 1):
                name = f"children/{index}.json"
                need(name in records and name not in found, f"{name}: missing, or named twice")
                found.add(name)
                waiting.append(records[name])
    need(found == {n for n in records if n.startswith("children/")}, "children: one is not named by the record")

def check_models(pack, records, model_key):
    """The signed manifest names the models' manifests; the records' model hashes are among them."""
    raw_key(model_key, "model.pub")
    check_signature(model_key, pack["model.manifest"], pack["model.sig"], "model.sig")
    listed = {n: h for h, n in re.findall(r"([0-9a-f]{64})  (\S+)\n", pack["model.manifest"].decode())}
    need(listed.keys() == {n for n in pack if n.endswith("/model.manifest")}, "model.manifest: other models")
    for name, digest in listed.items():
        need(hashlib.sha256(pack[name]).hexdigest() == digest, f"{name}: has another hash than model.manifest says")
        card = name.replace(".manifest", ".yaml")
        line = f"{hashlib.sha256(pack.get(card, b'')).hexdigest()}  model.yaml\n"
        need(line in pack[name].decode(), f"{card}: missing, or not what {name} says")
    need(sum(n.startswith("models/") for n in pack) == 2 * len(listed), "models: a file is there too much")
    used = {step["model_hash"] for record in records.values() for step in record["steps"]} - {None}
    need(used <= set(listed.values()), "model.manifest: a model that answered is not in it")
    return len(used)

def check_commitments(pack, record, input_path):
    need(len(salt := pack["salt.bin"]) == 32, "salt.bin: has not 32 bytes")
    need(pack["output_hash.txt"].decode() == f"{record['output_commitment']}\n", "output_hash.txt: not the record's")
    need(pack["input_hash.txt"].decode() == f"{record['input_commitment'] or ''}\n", "input_hash.txt: not the record's")
    committed = lambda data: hashlib.sha256(salt + data).hexdigest()  # noqa: E731
    need(committed(pack["result.json"]) == record["output_commitment"], "result.json: with salt.bin, not the recorded one")
    if input_path:
        need(committed(input_path.read_bytes()) == record["input_commitment"], f"{input_path}: not the input that was read")

def devices(records):
    """Where the steps ran: GPU UUIDs, and the CPU's name from the environment record for "cpu"."""
    cpu = records.get("hardware.json", {}).get("body", {}).get("cpu")
    used = {step["device_id"] for name, r in records.items() if name != "hardware.json" for step in r["steps"]}
    return {cpu or "unknown cpu" if device == "cpu" else device for device in used - {None}}

def check_timestamp(pack, ca):
    if not ca or "timestamp.cert" not in pack:
        return "there is one, NOT checked (--tsa-ca FILE)" if "timestamp.cert" in pack else "no timestamp"
    files = {"checkpoint": pack["checkpoint"], "timestamp.cert": pack["timestamp.cert"], "ca": ca.read_bytes()}
    accepted = openssl(files, "ts -verify -data checkpoint -in timestamp.cert -CAfile ca")
    need(accepted is not None, "timestamp.cert: openssl refuses it")
    text = openssl(files, "ts -reply -in timestamp.cert -text") or ""
    return f"over this checkpoint, checked: {text.partition('Time stamp: ')[2].partition(chr(10))[0]}"

def verify(arguments):
    check_form(pack := read_pack(arguments.pack))
    log_key = arguments.log_key.read_bytes() if arguments.log_key else pack["log.pub"]
    model_key = arguments.model_key.read_bytes() if arguments.model_key else pack["model.pub"]
    need(model_key == pack["model.pub"], "model.pub: not the models' key that you trust")
    records, origin, size, (cosigned, others), keys = check_proofs(pack, dict(map(witness_key, arguments.witness)))
    need(log_key in keys, "log.pub: not the log's key that you trust, nor one that it handed over to")
    record = records["record.json"]
    need(record["environment_index"] == records.get("hardware.json", {}).get("index"), "hardware.json: not the record's own")
    check_children(records)
    models = check_models(pack, records, model_key)
    check_commitments(pack, record, arguments.input)
    used, listed = devices(records), arguments.allowed_devices
    beyond = used - {line.strip() for line in listed.read_text().splitlines()} if listed else set()
    need(not beyond, f"device: {', '.join(sorted(beyond))} is not on the list")
    stamp = check_timestamp(pack, arguments.tsa_ca)
    own = lambda given: "the one you gave" if given else "the pack's own, compare it: SHA-256"  # noqa: E731
    print(f"verified: record {record['index']} of {origin}, {size} records, and {len(records) - 1} that it refers to")
    print(f"  {record['kind']} {record['phase']}, status {record['status']}, {record['time']}, {record['bundle']}")
    print(f"  log key: {own(arguments.log_key)} {hashlib.sha256(log_key).hexdigest()}; {len(keys) - 1} rotations")
    print(f"  model key: {own(arguments.model_key)} {hashlib.sha256(model_key).hexdigest()}; {models} models answered")
    print(f"  cosignatures: {cosigned} checked, {others} NOT checked (--witness KEY)\n  timestamp: {stamp}")
    print(f"  input: {'is what was read' if arguments.input else 'not checked (--input FILE)'}")
    print(f"  devices: {', '.join(sorted(used)) or 'none named'}")

def main():
    parser = argparse.ArgumentParser(description="Verify an audit pack offline.")
    parser.add_argument("pack", type=Path, nargs="?", default=Path(__file__).parent, help="zip or unpacked folder")
    for option in ("log-key", "model-key", "input", "allowed-devices", "tsa-ca"):
        parser.add_argument(f"--{option}", type=Path, metavar="FILE")
    parser.add_argument("--witness", action="append", default=[], metavar="KEY", help="must have cosigned; again for each")
    try:
        verify(parser.parse_args())
    except Failed as failure:
        sys.exit(f"NOT verified: {failure}")
    except (ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError, zipfile.BadZipFile) as error:
        sys.exit(f"NOT verified: malformed: {type(error).__name__}: {error}")

if __name__ == "__main__": main()  # noqa: E701
