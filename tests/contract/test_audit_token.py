"""The log's key in a PKCS#11 token (SoftHSM), and rotations to it and away from it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from affidavit.libs.evidence.keys import KeyFileError
from affidavit.libs.evidence.keysource import KeySource
from affidavit.libs.evidence.logkeys import LogKeys
from affidavit.libs.evidence.tokenuri import TokenUri

MODULE = "/usr/lib/softhsm/libsofthsm2.so"
MAKE_KEYS = """
import sys, pkcs11
from pkcs11.util.ec import encode_named_curve_parameters
token = pkcs11.lib(sys.argv[1]).get_token(token_label="affidavit")
with token.open(user_pin="5678", rw=True) as session:
    for label in sys.argv[2:]:
        curve = {pkcs11.Attribute.EC_PARAMS: encode_named_curve_parameters("1.3.101.112")}
        made = session.create_domain_parameters(pkcs11.KeyType.EC_EDWARDS, curve, local=True)
        made.generate_keypair(mechanism=pkcs11.Mechanism.EC_EDWARDS_KEY_PAIR_GEN, store=True, label=label)
"""
# In a process of its own, as the service is: SoftHSM reads its settings once in a process.
APPEND = """
import os, sys
from pathlib import Path
from affidavit.libs.evidence.keysource import KeySource
from affidavit.libs.evidence.logkeys import LogKeys
from affidavit.libs.evidence.receipt import verify_receipt
from affidavit.services.audit.append_stream import entry_of, receipt
from affidavit.services.audit.log import EvidenceLog
from affidavit.services.audit.opening import LogFolders
from tests.contract.audit_process import item
home, place, pin_file, name = sys.argv[1:5]
folders = LogFolders.below(Path(home), key=KeySource(place, os.environ["MODULE"], pin_file))
log = EvidenceLog(folders)
proven = log.append([entry_of(item(name))])[0]
log.close()
verify_receipt(receipt(proven), LogKeys.read(folders.keys))
print(proven.index)
"""


class Token:
    """A SoftHSM token with two keys, and commands that see it."""

    def __init__(self, folder: Path) -> None:
        (folder / "tokens").mkdir(parents=True)
        settings = folder / "softhsm2.conf"
        settings.write_text(f"directories.tokendir = {folder / 'tokens'}\nobjectstore.backend = file\n")
        self.environ = dict(os.environ) | {"SOFTHSM2_CONF": str(settings), "MODULE": MODULE}
        self.pin_file = folder / "pin"
        self.pin_file.write_text("5678\n")
        self.run("softhsm2-util", "--init-token", "--free", "--label", "affidavit", "--so-pin", "1234", "--pin", "5678")
        self.run(sys.executable, "-c", MAKE_KEYS, MODULE, "one", "two")

    def run(self, *command: str, code: int = 0) -> str:
        done = subprocess.run(command, env=self.environ, capture_output=True, text=True)
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    def append(self, home: Path, place: str, name: str, code: int = 0) -> str:
        return self.run(sys.executable, "-c", APPEND, str(home), place, str(self.pin_file), name, code=code)

    def maintain(self, home: Path, command: str, *given: str, key: str, code: int = 0) -> str:
        flags = ["--home", str(home), "--key", key, "--key-module", MODULE, "--key-pin-file", str(self.pin_file)]
        arguments = [sys.executable, "-m", "affidavit.services.audit.maintenance", command, *given, *flags]
        return self.run(*arguments, code=code)


@pytest.fixture
def token(tmp_path: Path) -> Token:
    assert shutil.which("softhsm2-util"), "SoftHSM is missing: apt-get install softhsm2"
    return Token(tmp_path / "hsm")


ONE, TWO = "pkcs11:token=affidavit;object=one", "pkcs11:token=affidavit;object=two"


@pytest.mark.slow
def test_a_log_is_signed_in_a_token_and_rotated_into_and_out_of_it(token: Token, tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert token.append(home, ONE, "a") == "0\n"
    assert not (home / "keys" / "log.key").exists()
    said = token.maintain(home, "rotate", "--to", TWO, key=ONE)
    assert f"AFFIDAVIT_AUDIT_KEY={TWO}" in said
    assert "destroy it there" in said
    assert "was retired at record 1" in token.append(home, ONE, "b", code=1)
    assert token.append(home, TWO, "b") == "2\n"
    token.maintain(home, "rotate", key=TWO)
    assert token.append(home, "", "c") == "4\n"
    token.maintain(home, "rotate", "--to", ONE.replace("one", "three"), key="", code=2)
    assert "a key that the log has, or had" in token.maintain(home, "rotate", "--to", ONE, key="", code=2)
    assert "5 records whole" in token.maintain(home, "fsck", key="")
    assert [key.until for key in LogKeys.read(home / "keys").retired] == [2, 4]


@pytest.mark.slow
def test_a_wrong_pin_a_missing_key_and_a_missing_library_are_said(token: Token, tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert token.append(home, ONE, "a") == "0\n"
    token.pin_file.write_text("0000")
    assert "PinIncorrect" in token.append(home, ONE, "b", code=1)
    token.pin_file.write_text("5678")
    assert "is not the public half of" in token.append(home, TWO, "b", code=1)
    assert "onex" in token.append(home, ONE + "x", "b", code=1)
    assert "/no/library" in token.append(home, f"{ONE}?module-path=/no/library.so", "b", code=1)
    assert token.append(home, ONE, "b") == "1\n"


def test_token_uris_are_read_in_one_form() -> None:
    uri = TokenUri.parse("pkcs11:token=My%20log;id=%01%ff;type=private?module-path=/m.so&pin-source=file:/run/pin")
    assert (uri.token, uri.id, uri.module, uri.pin_source) == ("My log", b"\x01\xff", "/m.so", "/run/pin")
    for wrong, words in {
        "pkcs11:token=a": "a key in it",
        "pkcs11:object=a": "must name a token",
        "pkcs11:token=a;object=b;object=c": "there twice",
        "pkcs11:token=a;object=b;slot-id=1": "unknown",
        "pkcs11:token=a;object=b;type=public": "private key",
        "pkcs11:token=a;object=b?pin-value=1234": "seen by everyone",
        "pkcs11:token=a;object=b?pin-source=|cat": "absolute path",
    }.items():
        with pytest.raises(KeyFileError, match=words):
            TokenUri.parse(wrong)
    assert "5678" not in repr(KeySource(ONE, MODULE, "", "5678"))
