"""The first whole path: a scanned letter in, its text and a receipt out, through real services."""

import asyncio
import json

import grpc
import pytest
import pytest_asyncio

from affidavit.audit.v1 import audit_pb2, audit_pb2_grpc
from affidavit.document.v1 import document_pb2
from affidavit.ingress.v1 import document_pb2 as pb
from affidavit.libs.document import page_result
from affidavit.libs.errors import from_rpc_error
from affidavit.libs.evidence.keys import load_public_key
from affidavit.libs.evidence.receipt import VerificationError, verify_receipt
from affidavit.libs.evidence.record import parse_leaf
from affidavit.libs.rpc import connect
from affidavit.tools.examples.letter_scan import PAGES
from tests.integration.conftest import LETTER, Answer, Stack, recognize, until


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def answer(stack: Stack) -> Answer:
    async with stack.client() as stub:
        return await recognize(stub, LETTER.read_bytes())


def squeeze(text: str) -> str:
    return "".join(text.replace("|", "").replace("# ", "").split())


async def test_the_letter_is_read_as_it_was_written(answer: Answer) -> None:
    wanted = [squeeze("".join(lines)) for lines in PAGES]
    read = [squeeze("".join(line.text for line in page.text.lines)) for page in answer.pages]
    assert read == wanted


async def test_pages_come_in_order_before_the_receipt_and_progress_says_how_far(answer: Answer) -> None:
    kinds = [m.WhichOneof("message") for m in answer.messages]
    assert kinds[0] == "accepted"
    assert kinds[-1] == "completed"
    assert [p.text.page_number for p in answer.pages] == [1, 2, 3]
    done = [m.progress.done_count for m in answer.messages if m.WhichOneof("message") == "progress"]
    assert done == sorted(done)
    assert done[-1] == 3


async def test_the_typed_page_says_what_the_hashed_bytes_say(answer: Answer) -> None:
    for page in answer.pages:
        assert page_result(page.text) == page.result


async def test_every_page_and_the_document_have_a_receipt_that_verifies(stack: Stack, answer: Answer) -> None:
    key = load_public_key(stack.log_key)
    verified = verify_receipt(answer.completed.receipt, key, result=answer.result, input=[LETTER.read_bytes()])
    pages = [verify_receipt(page.receipt, key, result=page.result) for page in answer.pages]
    named = [index for part in verified.leaf.children for index in part]
    assert named == [page.leaf.index for page in pages]
    assert {page.leaf.parent_index for page in pages} == {verified.leaf.parent_index}
    assert {(p.leaf.kind, p.leaf.phase, p.leaf.status) for p in pages} == {("page", "single", "ok")}


async def test_a_page_names_its_models_engines_and_environment(stack: Stack, answer: Answer) -> None:
    leaf = parse_leaf(answer.pages[0].receipt.leaf)
    assert [(s.service, bool(s.model_hash)) for s in leaf.steps] == [
        ("preprocess", False),
        ("ocr", True),
        ("ocr", True),
    ]
    assert all(s.engine and s.engine_version and s.input_hash and s.output_hash for s in leaf.steps)
    assert leaf.environment_index is not None
    async with connect(stack.service("audit").address) as channel:
        stub = audit_pb2_grpc.AuditServiceStub(channel)
        record = await stub.GetRecord(audit_pb2.GetRecordRequest(index=leaf.environment_index))
    environment = parse_leaf(record.receipt.leaf)
    assert environment.kind == "environment"
    assert environment.body is not None
    preprocess = environment.body["preprocess"]
    assert isinstance(preprocess, dict)
    assert (preprocess["software"], preprocess["version"]) == (leaf.steps[0].software, leaf.steps[0].version)
    assert preprocess["pdfium"] == leaf.steps[0].engine_version


async def test_changed_results_inputs_and_receipts_never_verify(stack: Stack, answer: Answer) -> None:
    key, receipt, data = load_public_key(stack.log_key), answer.completed.receipt, LETTER.read_bytes()
    verify_receipt(receipt, key, result=answer.result, input=[data])
    for result, input_ in [
        (answer.result + b" ", data),
        (answer.result, data[:-1] + b"\0"),
        (answer.pages[0].result, data),
    ]:
        with pytest.raises(VerificationError):
            verify_receipt(receipt, key, result=result, input=[input_])
    raw = receipt.SerializeToString()
    for at in range(0, len(raw), 7):
        changed = type(receipt)()
        try:
            changed.ParseFromString(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
        except Exception:  # no protobuf any more
            continue
        with pytest.raises(VerificationError):
            verify_receipt(changed, key, result=answer.result, input=[data])


async def test_the_same_call_again_gets_the_same_records(stack: Stack) -> None:
    async with stack.client() as stub:
        first, second = [
            await recognize(stub, LETTER.read_bytes(), metadata=(("x-request-id", "twice"),)) for _ in "12"
        ]
        assert [p.receipt.index for p in first.pages] == [p.receipt.index for p in second.pages]
        assert first.completed.receipt.leaf == second.completed.receipt.leaf
        assert first.result == second.result
        key = load_public_key(stack.log_key)
        verify_receipt(second.completed.receipt, key, result=second.result, input=[LETTER.read_bytes()])
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await recognize(stub, LETTER.read_bytes() + b"\n", metadata=(("x-request-id", "twice"),))
    assert caught.value.code() == grpc.StatusCode.ALREADY_EXISTS


async def test_the_same_file_gives_the_same_bytes_alone_and_among_16_callers(stack: Stack, shared_data) -> None:
    last = pb.RecognizeOptions(pages=[pb.PageRange(first=3, last=3)])
    bill = (shared_data / "ocr/accuracy/tjs_bill.png").read_bytes()
    async with stack.client() as stub:
        alone = [await recognize(stub, bill), await recognize(stub, LETTER.read_bytes(), last)]
        crowd = await asyncio.gather(
            *(recognize(stub, LETTER.read_bytes(), last) if i % 2 else recognize(stub, bill) for i in range(16))
        )
    assert [a.result for a in crowd] == [alone[i % 2].result for i in range(16)]


async def test_page_1_reaches_the_client_before_page_3_is_drawn(stack: Stack) -> None:
    drawn_at_page_1: list[float] = []

    def drawn() -> float:
        return sum(
            v for k, v in stack.metrics("preprocess").items() if k.startswith("affidavit_preprocess_pages_total")
        )

    before = drawn()

    def on_message(message: pb.RecognizeDocumentResponse) -> None:
        if message.WhichOneof("message") == "page" and not drawn_at_page_1:
            drawn_at_page_1.append(drawn() - before)

    async with stack.client() as stub:
        await recognize(stub, LETTER.read_bytes(), on_message=on_message)
    assert drawn_at_page_1[0] <= 2
    assert drawn() - before == 3


async def test_only_the_pages_asked_for_are_answered(stack: Stack) -> None:
    options = pb.RecognizeOptions(pages=[pb.PageRange(first=2, last=0)])
    async with stack.client() as stub:
        part = await recognize(stub, LETTER.read_bytes(), options)
    assert [p.text.page_number for p in part.pages] == [2, 3]
    assert json.loads(part.result)["source"] == {"media_type": "application/pdf", "page_count": 3}


async def test_one_broken_page_fails_alone(stack: Stack, shared_data) -> None:
    async with stack.client() as stub:
        half = await recognize(stub, (shared_data / "ocr/pdfs/pdfjs_Pages-tree-refs.pdf").read_bytes())
    statuses = {p.text.page_number: p.text.status for p in half.pages}
    assert sorted(statuses.values()) == [document_pb2.PAGE_STATUS_OK, document_pb2.PAGE_STATUS_FAILED]
    assert half.completed.failed_count == 1
    failed = next(p for p in half.pages if p.text.status == document_pb2.PAGE_STATUS_FAILED)
    assert parse_leaf(failed.receipt.leaf).status == "failed:PAGE_BROKEN"
    assert json.loads(failed.result) == {"page": failed.text.page_number, "reason": "PAGE_BROKEN", "status": "failed"}


async def test_a_blank_page_is_blank_and_nothing_is_made_up(stack: Stack, shared_data) -> None:
    async with stack.client() as stub:
        blank = await recognize(stub, (shared_data / "ocr/pdfs/omp_blank.pdf").read_bytes())
    assert blank.pages[0].text.blank
    assert not blank.pages[0].text.lines


@pytest.mark.parametrize(
    ("file", "reason", "code"),
    [
        ("pdfs/made_html_named_pdf.pdf", "UNSUPPORTED_FORMAT", grpc.StatusCode.INVALID_ARGUMENT),
        ("pdfs/plumb_empty.pdf", "EMPTY_INPUT", grpc.StatusCode.INVALID_ARGUMENT),
        ("pdfs/made_truncated_half.pdf", "DAMAGED_DOCUMENT", grpc.StatusCode.INVALID_ARGUMENT),
        ("pdfs/made_zero_pages.pdf", "NO_PAGES", grpc.StatusCode.INVALID_ARGUMENT),
        ("pdfs/pp2_encrypted.pdf", "PASSWORD_REQUIRED", grpc.StatusCode.FAILED_PRECONDITION),
    ],
)
async def test_bad_input_gets_a_clear_error_and_the_next_request_is_served(
    stack: Stack, shared_data, file, reason, code
) -> None:
    async with stack.client() as stub:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await recognize(stub, (shared_data / "ocr" / file).read_bytes())
        assert (from_rpc_error(caught.value, "").reason, caught.value.code()) == (reason, code)
        assert (
            await recognize(stub, LETTER.read_bytes(), pb.RecognizeOptions(pages=[pb.PageRange(first=3, last=3)]))
        ).pages


async def test_a_client_that_leaves_stops_the_work(stack: Stack) -> None:
    async with stack.client() as stub:

        async def requests():
            yield pb.RecognizeDocumentRequest(options=pb.RecognizeOptions())
            yield pb.RecognizeDocumentRequest(chunk=LETTER.read_bytes())

        call = stub.RecognizeDocument(requests())
        async for message in call:
            if message.WhichOneof("message") == "page":
                break
        call.cancel()
        await asyncio.to_thread(stack.metrics, "ingress")

    def idle() -> bool:
        return all(
            v == 0
            for name in ("ingress", "preprocess", "ocr")
            for k, v in stack.metrics(name).items()
            if k.startswith(("affidavit_rpc_active_calls", "affidavit_preprocess_leased_bytes"))
            and "AppendRecords" not in k
        )

    await until(idle, "every service idle, no lease held")
