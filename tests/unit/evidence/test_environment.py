"""Environment facts can be hashed, name what answers depend on, and do not change by themselves."""

import hashlib
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from affidavit.libs import canonicaljson
from affidavit.libs.evidence.draft import MAX_JSON_BYTES
from affidavit.libs.evidence.environment import environment_facts


def test_facts_are_canonical_json_and_the_same_each_time() -> None:
    body = canonicaljson.dumps(environment_facts())
    assert body == canonicaljson.dumps(environment_facts())
    assert len(body) < MAX_JSON_BYTES


def test_facts_name_machine_and_software() -> None:
    facts = environment_facts()
    assert facts["cpu"]
    assert facts["isa"]
    assert facts["python"] == ".".join(map(str, sys.version_info[:3]))
    assert facts["packages"]["onnxruntime"]
    assert facts["pdfium"].count(".") == 3
    native = Path(find_spec("affidavit._native").origin)
    assert facts["native_sha256"] == hashlib.sha256(native.read_bytes()).hexdigest()


def test_finding_facts_loads_no_parser() -> None:
    program = (
        "import sys; from affidavit.libs.evidence.environment import environment_facts; environment_facts(); "
        "print('pypdfium2_raw.bindings' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
