"""`affidavit ocr`: documents in, text or exact result bytes out, receipts checked."""

import asyncio
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import grpc
import typer
from rich.console import Console

from affidavit.document.v1 import document_pb2
from affidavit.ingress.v1 import document_pb2 as ingress_pb2
from affidavit.ingress.v1 import document_pb2_grpc as ingress_grpc
from affidavit.libs.errors import AffidavitError, from_rpc_error
from affidavit.libs.evidence.logkeys import LogKeys
from affidavit.libs.evidence.receipt import VerificationError, verify_receipt, write_receipt
from affidavit.libs.rpc import connect
from affidavit.tools.cli.exits import Exit, exit_for, fail
from affidavit.tools.cli.inputs import STDIN, Destination, Input, UsageFault, destination, find_inputs, write_atomically
from affidavit.tools.cli.progress import DocumentProgress
from affidavit.tools.cli.verify import read_log_key
from affidavit.tools.client import document
from affidavit.tools.client.document import Document, Page, PageRange
from affidavit.tools.stack.session import session


def ocr(
    files: list[Path] = typer.Argument(
        metavar="FILE…", help="PDF, PNG, JPEG, TIFF, WebP; folders; - for standard input"
    ),
    out: Path | None = typer.Option(None, "-o", "--out", help="file for one input, folder for several"),
    format: str | None = typer.Option(
        None, "--format", help="text or json [default: text; json into a folder or *.json]"
    ),
    pages: str = typer.Option("", "--pages", help="pages to read: 1-3,7 or 5-"),
    password: str = typer.Option("", "--password", envvar="AFFIDAVIT_PASSWORD", help="of an encrypted PDF"),
    receipt: Path | None = typer.Option(None, "--receipt", help="file for the receipt"),
    bundle: str = typer.Option("", "--bundle", help="bundle@version or alias that shall answer [default: promoted]"),
    jobs: int = typer.Option(2, "--jobs", min=1, max=64, help="documents read at once"),
    log_key: Path | None = typer.Option(None, "--log-key", help="log's public key [default: the data folder's]"),
    quiet: bool = typer.Option(False, "--quiet", "-q", help="no progress"),
) -> None:
    """Read documents. Text goes to standard output page by page; -o writes files."""
    try:
        inputs = find_inputs(files)
        target = destination(inputs, out, format, receipt)
        ranges = document.parse_pages(pages)
    except (UsageFault, ValueError) as fault:
        fail(str(fault), Exit.USAGE)
    command = _Command(target, ranges, password, bundle, log_key, quiet)
    sys.exit(asyncio.run(command.run(inputs, jobs)))


@dataclass
class _Outcome:
    code: Exit
    message: str = ""


class _Command:
    def __init__(
        self,
        target: Destination,
        pages: Sequence[PageRange],
        password: str,
        bundle: str,
        log_key: Path | None,
        quiet: bool,
    ) -> None:
        self._target = target
        self._pages = pages
        self._password = password
        self._bundle = bundle
        self._key_path = log_key
        self._key: LogKeys | None = None
        # With both on one terminal, text must go through the console that draws the bars.
        self._console = Console(stderr=not sys.stdout.isatty(), highlight=False, soft_wrap=True)
        self._progress = DocumentProgress(self._console, enabled=sys.stderr.isatty() and not quiet)

    async def run(self, inputs: Sequence[Input], jobs: int) -> Exit:
        """Read all, at most `jobs` at once; answers come out in the order of the inputs."""
        async with session(lambda line: print(f"affidavit: {line}", file=sys.stderr)) as stack:
            key_path = self._key_path or (stack.data.log_public_key if stack.data else None)
            if key_path is not None:
                self._key = read_log_key(key_path)
            async with connect(stack.address) as channel:
                stub = ingress_grpc.DocumentServiceStub(channel)
                slots = asyncio.Semaphore(jobs)
                with self._progress:
                    printers = [_Printer(source, self._target, self._console, len(inputs) > 1) for source in inputs]
                    tasks = [
                        asyncio.create_task(self._one(stub, source, printer, slots))
                        for source, printer in zip(inputs, printers, strict=True)
                    ]
                    worst = Exit.OK
                    for source, printer, task in zip(inputs, printers, tasks, strict=True):
                        printer.go_live()
                        outcome = await task
                        if outcome.message:
                            self._console.print(f"affidavit: {source.name}: {outcome.message}", markup=False)
                        worst = max(worst, outcome.code)
        return worst

    async def _one(
        self, stub: ingress_grpc.DocumentServiceStub, source: Input, printer: "_Printer", slots: asyncio.Semaphore
    ) -> _Outcome:
        async with slots:
            bar = self._progress.add(source.name)
            try:
                with _open(source) as file:
                    answer = await self._recognize(stub, file, printer, lambda p: self._progress.update(bar, p))
                    spooled = answer.receipt.HasField("spooled")
                    if self._key is not None and not spooled:
                        file.seek(0)
                        chunks = iter(lambda: file.read(1 << 20), b"")
                        verify_receipt(answer.receipt, self._key, result=answer.result, input=chunks)
                self._write(source, answer)
                printer.end(answer)
            except AffidavitError as error:
                return _Outcome(exit_for(error), f"{error.message} [{error.reason}]")
            except VerificationError as error:
                return _Outcome(Exit.UNVERIFIED, f"the receipt does not verify: {error}")
            except OSError as error:
                return _Outcome(Exit.FAILED, error.strerror or str(error))
            finally:
                self._progress.remove(bar)
        if answer.failed_count:
            return _Outcome(Exit.FAILED, f"{answer.failed_count} of {answer.page_count} pages could not be read")
        if spooled:
            message = f"the log is down: the record waits in the spool, under request id {answer.request_id}"
            return _Outcome(Exit.OK, f"{message}; the receipt has no proof yet")
        if self._key is None:
            return _Outcome(Exit.OK, "receipt not verified: no log key (--log-key)")
        return _Outcome(Exit.OK)

    async def _recognize(
        self,
        stub: ingress_grpc.DocumentServiceStub,
        file: BinaryIO,
        printer: "_Printer",
        on_progress: document.OnProgress,
    ) -> Document:
        try:
            info = await stub.GetServiceInfo(
                ingress_pb2.GetServiceInfoRequest(),
                metadata=[("x-model-version", self._bundle)] if self._bundle else [],
            )
            bundle = f"{info.bundle.name}@{info.bundle.version}"
            request_id = document.request_id(document.file_digest(file), self._pages, bundle)
            for attempt_id in (request_id, ""):
                try:
                    return await document.recognize(
                        stub,
                        file,
                        pages=self._pages,
                        password=self._password,
                        request_id=attempt_id,
                        bundle=bundle,
                        on_page=printer.page,
                        on_progress=on_progress,
                    )
                except grpc.aio.AioRpcError as error:
                    # Answered before by other software under the same bundle: say so, and record the new answer.
                    if not attempt_id or from_rpc_error(error, "").reason != "IDEMPOTENCY_CONFLICT":
                        raise
                    printer.restart("this file was answered differently before; the new answer is recorded anew")
                    file.seek(0)
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error, "ingress") from None
        raise AssertionError("both attempts ended without an answer or an error")

    def _write(self, source: Input, answer: Document) -> None:
        if path := self._target.result_path(source):
            write_atomically(path, answer.result if self._target.format == "json" else document_text(answer.result))
        if path := self._target.receipt_path(source):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_receipt(path, answer.receipt)


class _Printer:
    """One input's standard output: held back until the inputs before it have ended."""

    def __init__(self, source: Input, target: Destination, console: Console, titled: bool) -> None:
        self._target = target
        self._console = console
        self._held: list[str | bytes] | None = []
        self._silent = target.result_path(source) is not None
        self._titled = titled
        self._source = source
        self._pages = 0

    def go_live(self) -> None:
        held, self._held = self._held or [], None
        if self._titled and not self._silent and self._target.format == "text":
            self._say(f"==> {self._source.name} <==\n")
        for piece in held:
            self._say(piece)

    def page(self, page: Page) -> None:
        if self._silent or self._target.format == "json":
            return
        if sys.stdout.isatty():
            self._say(f"— page {page.text.page_number} {_remark(page.text)}—\n{page_text(page.text)}\n")
        else:  # pages end with a form feed, as pdftotext writes them
            self._say(page_text(page.text) + "\n\f")
        self._pages += 1

    def end(self, answer: Document) -> None:
        if not self._silent and self._target.format == "json":
            self._say(answer.result + (b"\n" if self._titled or sys.stdout.isatty() else b""))

    def restart(self, why: str) -> None:
        if self._held is not None:
            self._held.clear()
        print(f"affidavit: {self._source.name}: {why}", file=sys.stderr)

    def _say(self, piece: str | bytes) -> None:
        if self._held is not None:
            self._held.append(piece)
        elif sys.stdout.isatty():
            self._console.print(piece.decode() if isinstance(piece, bytes) else piece, end="", markup=False)
        else:
            sys.stdout.buffer.write(piece.encode() if isinstance(piece, str) else piece)
            sys.stdout.buffer.flush()


def page_text(text: document_pb2.PageText) -> str:
    """A page's lines, one a line."""
    return "\n".join(line.text for line in text.lines)


def document_text(result: bytes) -> bytes:
    """A document result's text in UTF-8: a line a line, a form feed after each page."""
    pages = json.loads(result)["pages"]
    return "".join("".join(f"{line['text']}\n" for line in page.get("lines", ())) + "\f" for page in pages).encode()


def _remark(text: document_pb2.PageText) -> str:
    match text.status:
        case document_pb2.PAGE_STATUS_FAILED:
            return f"could not be read: {text.reason} "
        case document_pb2.PAGE_STATUS_UNCERTAIN:
            return "is uncertain, scan it again "
        case _:
            return "is blank " if text.blank else ""


def _open(source: Input) -> BinaryIO:
    """The input as a file that can be read twice: for its hash, then for the upload."""
    if source.path != STDIN:
        return source.path.open("rb")
    spool = tempfile.SpooledTemporaryFile(max_size=64 << 20)  # noqa: SIM115 (the caller closes it)
    while chunk := sys.stdin.buffer.read(1 << 20):
        spool.write(chunk)
    spool.seek(0)
    return spool  # type: ignore[return-value]
