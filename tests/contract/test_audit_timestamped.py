"""Timestamps over checkpoints: what is kept verifies with openssl, packs bring the first that covers."""

import asyncio
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509 import load_pem_x509_certificate
from rfc3161_client import HashAlgorithm, TimestampRequestBuilder

from affidavit.libs.evidence.certificateorder import sorted_certificates
from affidavit.libs.evidence.note import Verifier, open_checkpoint
from affidavit.libs.evidence.receipt import verify_receipt
from affidavit.libs.evidence.timestamps import FOLDER, Timestamp, TimestampError, TimestampFolder
from affidavit.libs.runtime import DataFolder
from affidavit.services.audit import metrics
from affidavit.services.audit.append_stream import entry_of
from affidavit.services.audit.development_authority import CA_NAME, DevelopmentAuthority
from affidavit.services.audit.log import EvidenceLog
from affidavit.services.audit.opening import LogFolders
from affidavit.services.audit.timestamping import Timestamping
from affidavit.tools.auditpack.collect import gather
from tests.contract.audit_process import AuditProcess, append, head, item


@pytest.fixture
def log(tmp_path):
    log = EvidenceLog(LogFolders.below(tmp_path / "home"))
    yield log
    log.close()


@pytest.fixture
def development(tmp_path) -> DevelopmentAuthority:
    return DevelopmentAuthority(tmp_path / "authority")


def grow(log: EvidenceLog, name: str, count: int) -> None:
    log.append([entry_of(item(f"{name}-{number}")) for number in range(count)])


def openssl_accepts(folder: Path, size: int, checkpoint: bytes, ca: Path) -> bool:
    (folder / "asked").write_bytes(checkpoint)
    command = ["openssl", "ts", "-verify", "-data", "asked", "-in", f"{size}.tsr", "-CAfile", str(ca)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert "Verification: OK" in done.stdout or "Verification: FAILED" in done.stdout
    return done.returncode == 0


async def test_each_grown_head_is_timestamped_once_and_openssl_agrees(log, development, tmp_path) -> None:
    kept, ca = TimestampFolder(tmp_path / "kept"), tmp_path / "authority" / CA_NAME
    stamping = Timestamping(log, development, tmp_path / "kept")
    assert await stamping.once() is None, "an empty log has nothing to show"
    for count, size in ((3, 3), (2, 5)):
        grow(log, f"to-{size}", count)
        made = await stamping.once()
        assert made is not None
        assert (made.size, made.checkpoint) == (size, log.head.note)
        assert made.response == (tmp_path / "kept" / f"{size}.tsr").read_bytes()
        assert await stamping.once() is None
        assert openssl_accepts(tmp_path / "kept", size, made.checkpoint, ca)
        assert not openssl_accepts(tmp_path / "kept", size, made.checkpoint.replace(b"affidavit", b"Affidavit", 1), ca)
    assert await Timestamping(log, development, tmp_path / "kept").once() is None, "also by a new process"
    assert kept.sizes() == [3, 5]
    covering = [kept.first_covering(index) for index in range(6)]
    assert [stamp and stamp.size for stamp in covering] == [3, 3, 3, 5, 5, None]
    assert DevelopmentAuthority(tmp_path / "authority").roots == development.roots, "it is made once"


async def test_a_chain_is_accepted_in_whatever_order_the_authority_sends_it(development, tmp_path) -> None:
    config = tmp_path / "authority" / "openssl.cnf"
    config.write_text(config.read_text() + f"certs = {CA_NAME}\n")
    query = TimestampRequestBuilder().data(b"checkpoint\n").hash_algorithm(HashAlgorithm.SHA256).build()
    sent = await development.answer(query.as_bytes())
    pems = [(tmp_path / "authority" / name).read_bytes() for name in ("tsa.pem", CA_NAME)]
    first, second = (load_pem_x509_certificate(pem).public_bytes(Encoding.DER) for pem in pems)
    orders = [first + second, second + first]
    (order,) = [order for order in orders if order in sent]
    both = [sent.replace(order, other) for other in orders]
    assert len({*both}) == 2
    assert {sorted_certificates(response) for response in both} == {sent.replace(order, min(orders))}
    for response in both:
        assert Timestamp(1, b"checkpoint\n", response).verify(development.roots, query.nonce) > 0
        with pytest.raises(TimestampError):
            Timestamp(1, b"checkpoint\n", response[:-1]).verify(development.roots, query.nonce)
    for place in range(len(sent)):  # whatever is sent is refused in words, or is a response
        for broken in (sent[:place], sent[:place] + bytes([sent[place] ^ 0x55]) + sent[place + 1 :]):
            with suppress(TimestampError):
                Timestamp(1, b"checkpoint\n", broken).verify(development.roots, query.nonce)


class Other:
    """An authority that answers something else than what was asked."""

    def __init__(self, authority: DevelopmentAuthority, answer) -> None:
        self.roots = authority.roots
        self.answer = answer


async def test_an_answer_that_does_not_verify_is_not_kept(log, development, tmp_path) -> None:
    grow(log, "a", 3)
    earlier = await Timestamping(log, development, tmp_path / "kept").once()
    assert earlier is not None
    stranger = DevelopmentAuthority(tmp_path / "stranger")

    async def replayed(query: bytes) -> bytes:
        return earlier.response

    async def of_the_stranger(query: bytes) -> bytes:
        return await stranger.answer(query)

    async def changed(query: bytes) -> bytes:
        answer = bytearray(await development.answer(query))
        answer[-1] ^= 1  # in the signature
        return bytes(answer)

    async def nonsense(query: bytes) -> bytes:
        return b"<html>"

    async def refused(query: bytes) -> bytes:
        return bytes.fromhex("30053003020102")  # status: rejection, no token

    async def gone(query: bytes) -> bytes:
        raise FileNotFoundError("openssl")

    liars = {replayed: "refused", of_the_stranger: "refused", changed: "refused", nonsense: "refused"}
    for answer, code in (liars | {refused: "refused", gone: "os"}).items():
        for grown in (False, True):
            folder = tmp_path / f"{answer.__name__}-{grown}"
            if grown:
                grow(log, answer.__name__, 1)
            count = metrics.timestamp_failures.labels(code)._value.get()
            assert await Timestamping(log, Other(development, answer), folder).once() is None, answer.__name__
            assert metrics.timestamp_failures.labels(code)._value.get() == count + 1
            assert TimestampFolder(folder).sizes() == []
    assert await Timestamping(log, development, tmp_path / "last").once() is not None, "the same head with a true one"


async def test_the_service_asks_an_authority_at_a_url(development, tmp_path) -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.content_type)
        if len(asked) == 1:
            return web.Response(status=503)
        body = await development.answer(await request.read())
        return web.Response(body=body, content_type="application/timestamp-reply")

    application = web.Application()
    application.router.add_post("/tsa", answer)
    home, ca = tmp_path / "home", tmp_path / "authority" / CA_NAME
    async with TestServer(application) as server:
        url = str(server.make_url("/tsa"))
        flags = ("--timestamp-authority", url, "--timestamp-roots", str(ca), "--timestamp-interval-s", "0.1")
        audit = AuditProcess(home, *flags)
        try:
            async with audit.stub() as stub, asyncio.timeout(30):
                await append(stub, [[item(f"r-{number}") for number in range(3)]])
                kept = TimestampFolder(home / "audit" / FOLDER)
                while kept.of_size(3) is None:
                    await asyncio.sleep(0.05)
                origin = (await head(stub)).origin
        finally:
            assert audit.stop() == 0
    assert set(asked) == {"application/timestamp-query"}
    assert kept.sizes() == [3]
    stamp = kept.of_size(3)
    assert open_checkpoint(stamp.checkpoint, [Verifier(origin, audit.key)]).size == 3
    assert stamp.verify(development.roots) > 0
    with pytest.raises(TimestampError):
        Timestamp(3, stamp.checkpoint + b"\n", stamp.response).verify(development.roots)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--timestamp-authority", "tsa.example"), "neither"),
        (("--timestamp-authority", "http://tsa.example"), "timestamp_roots is needed"),
        (("--timestamp-authority", "http://tsa.example", "--timestamp-roots", __file__), "no PEM certificates"),
    ],
)
def test_settings_that_name_no_authority_are_refused(tmp_path, flags, words) -> None:
    code, line = AuditProcess(tmp_path / "home", *flags).ended()
    assert (code, words in line) == (2, True), line


async def test_a_pack_is_made_as_of_the_first_timestamp_that_covers_its_record(tmp_path) -> None:
    home = tmp_path / "home"
    kept = TimestampFolder(DataFolder(home).audit / FOLDER)
    log = EvidenceLog(LogFolders.below(home))
    stamping = Timestamping(log, DevelopmentAuthority(tmp_path / "authority"), home / "audit" / FOLDER)
    for name, count in (("a", 3), ("b", 2)):
        grow(log, name, count)
        assert await stamping.once() is not None
    grow(log, "c", 3)
    log.close()
    audit = AuditProcess(home)
    try:
        async with audit.stub() as stub:
            for index, size in ((0, 3), (2, 3), (3, 5), (4, 5), (5, None), (7, None)):
                collected = await gather(stub, index, kept)
                verified = verify_receipt(collected.receipt, audit.key)
                assert (verified.leaf.index, verified.head.size) == (index, size or 8)
                assert (collected.timestamp and collected.timestamp.size) == size
                if collected.timestamp:
                    assert collected.timestamp.checkpoint == collected.receipt.checkpoint.note
            newest = (await gather(stub, 7, kept)).receipt
            assert (await gather(stub, 7, kept, newest)).timestamp is None
            stamped = (await gather(stub, 4, kept)).receipt
            as_of = await gather(stub, 4, kept, stamped)
            assert as_of.timestamp is not None
            assert as_of.timestamp.size == 5
    finally:
        audit.stop()
