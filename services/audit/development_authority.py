"""A timestamp authority for development: `openssl ts` with a certificate of its own, in the log's own folder.

It says the operator's own time under the operator's own key, so it proves nothing to anyone else; its certificates say so by
name. It is there so that everything around a timestamp can be run, tested and shown without a contract with an authority.
"""

import asyncio
import shutil
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from affidavit.libs.evidence.durablefile import create_file
from affidavit.libs.evidence.timestamps import TimestampError

CA_NAME = "ca.pem"  # what an auditor gives to `verify.py --tsa-ca`
_VALID = timedelta(days=3650)
_NAME = "affidavit DEVELOPMENT timestamp authority, proves nothing"
_DEADLINE_S = 30
_OPENSSL_CONFIG = """\
[tsa]
default_tsa = development
[development]
serial = serial
signer_cert = tsa.pem
signer_key = tsa.key
signer_digest = sha256
# 2.999 is the arc for examples: no policy stands behind it
default_policy = 2.999.1
digests = sha256
accuracy = secs:1
ess_cert_id_alg = sha256
"""


class DevelopmentAuthority:
    """`ca.pem`, `tsa.pem`, `tsa.key` and the last serial number in a folder."""

    def __init__(self, folder: Path) -> None:
        """Make the authority in `folder` where there is none.

        Raises:
            OSError: the disk refuses. TimestampError: its certificate cannot be read.
        """
        self._folder = folder
        if not folder.exists():
            _create(folder)
        try:
            self.roots: Sequence[x509.Certificate] = [x509.load_pem_x509_certificate((folder / CA_NAME).read_bytes())]
        except ValueError as error:
            raise TimestampError(f"{folder / CA_NAME} is no certificate: {error}") from None

    async def answer(self, query: bytes) -> bytes:
        """The response (DER) to a query (DER).

        Raises:
            TimestampError: openssl made none. OSError: it is not there. TimeoutError: it did not end.
        """
        arguments = ["ts", "-reply", "-config", "openssl.cnf", "-queryfile", "/dev/stdin"]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            "openssl", *arguments, cwd=self._folder, stdin=pipe, stdout=pipe, stderr=pipe
        )
        try:
            async with asyncio.timeout(_DEADLINE_S):
                response, errors = await process.communicate(query)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode:
            raise TimestampError(f"openssl ts: {errors.decode(errors='replace').strip()[-500:]}")
        return response


def _create(folder: Path) -> None:
    """Whole from its first moment: made beside it, and renamed."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(prefix=f"{folder.name}.", dir=folder.parent))
    try:
        ca_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
        ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{_NAME} (CA)")])
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _NAME)])
        ca_usage, usage = x509.BasicConstraints(ca=True, path_length=0), [ExtendedKeyUsageOID.TIME_STAMPING]
        ca = _builder(ca_name, ca_name, ca_key.public_key()).add_extension(ca_usage, critical=True)
        tsa = _builder(name, ca_name, key.public_key())
        tsa = tsa.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        tsa = tsa.add_extension(x509.ExtendedKeyUsage(usage), critical=True)  # RFC 3161 2.3: critical, and alone
        pem = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        create_file(made / CA_NAME, _pem(ca.sign(ca_key, hashes.SHA256())), 0o644)  # its key is not kept
        create_file(made / "tsa.pem", _pem(tsa.sign(ca_key, hashes.SHA256())), 0o644)
        create_file(made / "tsa.key", key.private_bytes(*pem), 0o600)
        create_file(made / "openssl.cnf", _OPENSSL_CONFIG.encode(), 0o644)
        create_file(made / "serial", b"01\n", 0o644)
        made.rename(folder)
    except OSError:
        shutil.rmtree(made, ignore_errors=True)
        raise


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    dates = x509.CertificateBuilder().not_valid_before(now - timedelta(minutes=5)).not_valid_after(now + _VALID)
    return dates.subject_name(subject).issuer_name(issuer).public_key(key).serial_number(x509.random_serial_number())


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
