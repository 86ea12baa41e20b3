"""The ocr service alone, over gRPC, on real weights and real pages."""

import asyncio
import hashlib
import itertools
import os
import signal
import socket
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import cv2
import grpc
import numpy as np
import pytest
import pytest_asyncio
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families

from affidavit.document.v1 import document_pb2
from affidavit.libs import document, errors
from affidavit.libs.models import ModelFolder, default_models_folder
from affidavit.libs.pageimages import LeaseFolder
from affidavit.libs.rpc import connect
from affidavit.ocr.v1 import ocr_pb2, ocr_pb2_grpc
from affidavit.tools.bench.ocr_pages import page_images

pytestmark = pytest.mark.asyncio(loop_scope="module")

ACCURACY = Path(__file__).parents[3] / "shared" / "data" / "ocr" / "accuracy"
NAME = "affidavit.ocr.v1.OcrService"
DEADLINE_S = 120


@dataclass
class Server:
    """A running service."""

    process: asyncio.subprocess.Process
    stub: ocr_pb2_grpc.OcrServiceStub
    channel: grpc.aio.Channel
    metrics_address: str
    shared_memory: Path
    config: Path

    async def metric(self, name: str, **labels: str) -> float:
        """Sum of a metric's samples that have these labels."""
        with await asyncio.to_thread(
            urllib.request.urlopen, f"http://{self.metrics_address}/metrics", timeout=10
        ) as page:
            families = list(text_string_to_metric_families(page.read().decode()))
        samples = (s for f in families for s in f.samples if s.name == name)
        return sum(s.value for s in samples if labels.items() <= s.labels.items())


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@asynccontextmanager
async def running(folder: Path, *flags: str) -> AsyncIterator[Server]:
    address, metrics = f"unix:{folder}/ocr.sock", f"127.0.0.1:{free_port()}"
    config = folder / "affidavit.yaml"
    environment = os.environ | {
        "AFFIDAVIT_SHM": str(folder / "shm"),
        "AFFIDAVIT_CONFIG": str(config),
        "AFFIDAVIT_HOME": str(folder / "home"),
    }
    arguments = ["-m", "affidavit.services.ocr", "--address", address, "--metrics-address", metrics, *flags]
    with (folder / "ocr.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(sys.executable, *arguments, env=environment, stderr=log)
    channel = connect(address, health_service=NAME)
    try:
        async with asyncio.timeout(DEADLINE_S):
            watch = health_pb2_grpc.HealthStub(channel).Watch(
                health_pb2.HealthCheckRequest(service=NAME), wait_for_ready=True
            )
            async for update in watch:
                if update.status == health_pb2.HealthCheckResponse.SERVING:
                    break
        yield Server(process, ocr_pb2_grpc.OcrServiceStub(channel), channel, metrics, folder / "shm", config)
    finally:
        await channel.close()
        if process.returncode is None:
            process.terminate()
            async with asyncio.timeout(DEADLINE_S):
                await process.wait()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory):
    # A batch waits until it is full, so that which callers share one is decided by the test and not by the clock.
    flags = ("--canary-interval-s", "3600", "--max-batch", "2", "--hold-us", "100000", "--pages-at-once", "16")
    async with running(tmp_path_factory.mktemp("ocr"), *flags) as server:
        yield server


def image(pixels: np.ndarray, number: int = 1) -> document_pb2.PageImage:
    """A page image of unknown resolution, inline."""
    height, width = pixels.shape[:2]
    data = np.ascontiguousarray(pixels).tobytes()
    return document_pb2.PageImage(
        page_number=number,
        width=width,
        height=height,
        format=document_pb2.PIXEL_FORMAT_GRAY8 if pixels.ndim == 2 else document_pb2.PIXEL_FORMAT_BGR24,
        page_width=width * 100,
        page_height=height * 100,
        pixel_scale=100,
        sha256=hashlib.sha256(data).digest(),
        inline=data,
    )


def page(name: str) -> np.ndarray:
    return next(page_images(ACCURACY / name))


def drawn(*texts: str) -> np.ndarray:
    """A page of lines of text."""
    pixels = np.full((40 + 50 * len(texts), 500), 255, np.uint8)
    for i, text in enumerate(texts):
        cv2.putText(pixels, text, (20, 50 + 50 * i), cv2.FONT_HERSHEY_DUPLEX, 1.0, 0, 2, cv2.LINE_AA)
    return pixels


async def recognize(
    server: Server, images: Iterable[document_pb2.PageImage], bundle: str = ""
) -> dict[int, ocr_pb2.RecognizePagesResponse]:
    """One call; answers by sequence number."""

    async def requests():
        for sequence, each in enumerate(images):
            yield ocr_pb2.RecognizePagesRequest(sequence=sequence, image=each, bundle=bundle)

    call = server.stub.RecognizePages(requests(), timeout=DEADLINE_S)
    return {answer.sequence: answer async for answer in call}


async def recognize_one(server: Server, each: document_pb2.PageImage) -> ocr_pb2.RecognizePagesResponse:
    return (await recognize(server, [each]))[0]


def text_of(answer: ocr_pb2.RecognizePagesResponse) -> str:
    return "\n".join(line.text for line in answer.text.lines)


async def test_a_page_comes_back_as_text_with_result_bytes_and_evidence(server) -> None:
    pixels = page("tess_phototest.tif")
    answer = await recognize_one(server, image(pixels, number=3))
    assert text_of(answer).split() == (ACCURACY / "tess_phototest.txt").read_text("utf-8").split()
    assert answer.text.page_number == 3
    assert answer.text.status == document_pb2.PAGE_STATUS_OK
    assert answer.text.confidence > 9000
    assert answer.result == document.page_result(answer.text)
    assert answer.bundle == "document@20261203.1"
    members = ModelFolder(default_models_folder()).bundle("document").members
    detection, recognition = answer.steps
    assert [(s.model, s.model_hash) for s in answer.steps] == [
        ("ppocr-det-small", members["detection"].model_hash),
        ("ppocr-rec-small", members["recognition"].model_hash),
    ]
    assert detection.input_digest == hashlib.sha256(pixels.tobytes()).digest()
    assert detection.output_digest == recognition.input_digest
    assert recognition.output_digest == hashlib.sha256(answer.result).digest()
    assert answer.meta.line_count == len(answer.text.lines)
    assert answer.meta.detect_us > 0


async def test_words_and_lines_lie_on_the_page_in_its_own_unit(server) -> None:
    each = image(drawn("two words"))
    each.pixel_scale, each.page_width, each.page_height = 0, 36_000, 6_480  # 5 in x 0.9 in
    answer = await recognize_one(server, each)
    (line,) = answer.text.lines
    assert [word.text for word in line.words] == ["two", "words"]
    two, words = (word.quad for word in line.words)
    assert line.quad.x1 <= two.x1 < two.x2 < words.x1 < words.x2 <= line.quad.x2
    assert two.x1 == pytest.approx(20 * 72, abs=10 * 72)
    assert 0 <= line.quad.y1 < line.quad.y4 <= 6_480


async def test_answers_carry_their_sequence_and_come_for_every_page(server) -> None:
    texts = ["alpha", "beta", "gamma", "delta", "epsilon", "zeta"]
    answers = await recognize(server, (image(drawn(t), number=i + 1) for i, t in enumerate(texts)))
    assert {i: text_of(answers[i]) for i in answers} == dict(enumerate(texts))


async def test_the_same_page_gives_the_same_bytes_alone_and_among_callers(server) -> None:
    names = ["rapid_en.jpg", "poj_test.jpg", "tjs_testocr.png"]
    images = {name: image(page(name)) for name in names}
    alone = {name: (await recognize_one(server, images[name])).result for name in names}
    rounds = list(itertools.islice(itertools.cycle(names), 9))
    together = await asyncio.gather(*(recognize_one(server, images[name]) for name in rounds))
    assert [answer.result for answer in together] == [alone[name] for name in rounds]


async def test_two_callers_share_a_batch_and_every_batch_is_one_engine_call(server) -> None:
    async def counts() -> tuple[float, float, float]:
        return (
            await server.metric("affidavit_batch_size_items_sum", model="ocr-recognition"),
            await server.metric("affidavit_batch_size_items_count", model="ocr-recognition"),
            await server.metric("affidavit_engine_calls_total", model="ppocr-rec-small"),
        )

    shared = False
    for _ in range(20):  # a batch is held for 100 ms: on a busy machine the two may miss each other
        before = await counts()
        first, second = await asyncio.gather(*(recognize_one(server, image(drawn(text))) for text in ("yours", "ours")))
        after = await counts()
        assert (text_of(first), text_of(second)) == ("yours", "ours")
        crops, batches, calls = (b - a for a, b in zip(before, after, strict=True))
        assert crops == 2
        assert batches == calls
        shared = shared or batches == 1
    assert shared


async def test_a_handle_and_inline_pixels_give_the_same_bytes(server) -> None:
    inline = image(page("rapid_en.jpg"))
    leases = LeaseFolder(server.shared_memory, "test")
    by_handle = document_pb2.PageImage()
    by_handle.CopyFrom(inline)
    lease = leases.lease(inline.inline)
    assert lease
    by_handle.handle.CopyFrom(lease.handle)
    try:
        answers = await recognize(server, [inline, by_handle])
    finally:
        leases.close()
    assert answers[0].result == answers[1].result
    assert text_of(answers[0])


async def test_a_bad_page_fails_alone_and_says_why(server) -> None:
    good, wrong_hash, no_handle, wrong_size, no_number = (image(drawn("good")) for _ in range(5))
    wrong_hash.sha256 = bytes(32)
    no_handle.handle.name, no_handle.handle.length = "gone", len(good.inline)
    wrong_size.height += 1
    no_number.page_number = 0
    answers = await recognize(server, [wrong_hash, no_handle, wrong_size, no_number, good])
    assert [answers[i].error.reason for i in range(5)] == [
        "HASH_MISMATCH",
        "HANDLE_UNREACHABLE",
        "INVALID_OPTION",
        "INVALID_OPTION",
        "",
    ]
    assert not answers[0].result
    assert text_of(answers[4]) == "good"


async def test_a_blank_page_is_blank_and_fine(server) -> None:
    answer = await recognize_one(server, image(np.full((1200, 900), 250, np.uint8)))
    assert answer.text.blank
    assert answer.text.status == document_pb2.PAGE_STATUS_OK
    assert (answer.text.confidence, answer.text.suggestion, len(answer.text.lines)) == (0, "", 0)


async def test_a_page_that_cannot_be_read_surely_says_uncertain_and_what_to_do(server) -> None:
    answer = await recognize_one(server, image(unreadable()))
    assert answer.text.status == document_pb2.PAGE_STATUS_UNCERTAIN
    assert answer.text.suggestion == "rescan"
    assert 0 < answer.text.confidence < 3000
    assert b'"status":"uncertain"' in answer.result
    assert len(answer.text.lines) > 0  # what was read is not hidden


async def test_a_page_upside_down_says_the_same_as_upright(server) -> None:
    pixels = page("tess_phototest.tif")
    answers = await recognize(server, [image(pixels), image(np.ascontiguousarray(np.rot90(pixels, 2)))])
    assert (answers[0].text.rotation, answers[1].text.rotation) == (0, 180)
    assert text_of(answers[0]) == text_of(answers[1])


async def test_the_bundle_is_told_by_alias_and_version(server) -> None:
    expected = ModelFolder(default_models_folder()).bundle("document").message()
    for selector in ("", "promoted", "document@20261203.1"):
        answer = await server.stub.GetBundle(ocr_pb2.GetBundleRequest(bundle=selector), timeout=DEADLINE_S)
        assert answer.bundle == expected


async def test_an_unknown_bundle_is_refused_with_what_there_is(server) -> None:
    for call in (
        server.stub.GetBundle(ocr_pb2.GetBundleRequest(bundle="document@20200101.1"), timeout=DEADLINE_S),
        recognize(server, [image(drawn("x"))], bundle="document@20200101.1"),
    ):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
        error = errors.from_rpc_error(caught.value, "ocr")
        assert error.reason == "BUNDLE_NOT_FOUND"
        assert "document@20261203.1" in str(error)


async def test_pages_of_one_call_have_one_bundle(server) -> None:
    async def requests():
        yield ocr_pb2.RecognizePagesRequest(sequence=0, image=image(drawn("a")))
        yield ocr_pb2.RecognizePagesRequest(sequence=1, image=image(drawn("b")), bundle="promoted")

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async for _ in server.stub.RecognizePages(requests(), timeout=DEADLINE_S):
            pass
    assert errors.from_rpc_error(caught.value, "ocr").reason == "INVALID_STREAM"


async def test_no_more_than_four_pages_of_a_caller_who_does_not_read_are_taken(server) -> None:
    sent = 0

    async def requests():
        nonlocal sent
        for sequence in range(40):
            yield ocr_pb2.RecognizePagesRequest(sequence=sequence, image=image(noise()))
            sent = sequence + 1

    call = server.stub.RecognizePages(requests(), timeout=DEADLINE_S)
    first = await call.read()
    assert first.sequence < 4
    # Others are served meanwhile, and the caller's next pages wait at his own end.
    assert text_of(await recognize_one(server, image(drawn("others")))) == "others"
    assert sent < 20
    call.cancel()


async def test_a_caller_who_leaves_takes_his_work_along(server) -> None:
    async def requests():
        for sequence in range(4):
            yield ocr_pb2.RecognizePagesRequest(sequence=sequence, image=image(page("sroie_333.jpg")))

    cancelled = await server.metric("affidavit_batch_items_total", code="CANCELLED")
    call = server.stub.RecognizePages(requests(), timeout=DEADLINE_S)
    async with asyncio.timeout(DEADLINE_S):
        reading = asyncio.create_task(call.read())
        while await server.metric("affidavit_batch_waiting_items", model="ocr-recognition") < 10:
            await asyncio.sleep(0.01)
        call.cancel()
        reading.cancel()
        while await server.metric("affidavit_batch_waiting_items"):
            await asyncio.sleep(0.01)
    assert await server.metric("affidavit_batch_items_total", code="CANCELLED") > cancelled


async def test_scheduling_changes_on_sighup_and_nonsense_changes_nothing(tmp_path) -> None:
    async with running(tmp_path, "--canary-interval-s", "3600", "--drain-s", "0.5") as server:
        log = tmp_path / "ocr.log"
        for content, event in (("max_batch: 7", "reloaded"), ("max_batch: 700", "reload_refused")):
            server.config.write_text(f"ocr: {{{content}}}", "utf-8")
            server.process.send_signal(signal.SIGHUP)
            async with asyncio.timeout(DEADLINE_S):
                while f'"event": "{event}"' not in log.read_text("utf-8"):
                    await asyncio.sleep(0.01)
        assert text_of(await recognize_one(server, image(drawn("still here")))) == "still here"
        server.process.terminate()
        async with asyncio.timeout(DEADLINE_S):
            assert await server.process.wait() == 0


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--max-batch", "0"], "max_batch (--max-batch)"),
        (["--models-folder", "/nowhere"], "set models_folder"),
        (["--bundle", "document@20200101.1"], "there is document@20261203.1"),
    ],
)
async def test_a_service_that_cannot_start_says_why_and_exits_with_2(tmp_path, flags, message) -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "affidavit.services.ocr", "--address", f"unix:{tmp_path}/ocr.sock", *flags),
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(DEADLINE_S):
        _, stderr = await process.communicate()
    assert process.returncode == 2
    assert message in stderr.decode()


def noise() -> np.ndarray:
    """6 MB of page: enough that forty do not fit into anyone's buffers."""
    return np.random.default_rng(1).integers(200, 255, (1600, 1250, 3), np.uint8)


def unreadable() -> np.ndarray:
    """A page of text too blurred to be read."""
    pixels = cv2.GaussianBlur(page("tess_phototest.tif"), (0, 0), 5)
    return cv2.cvtColor(pixels, cv2.COLOR_BGR2GRAY)
