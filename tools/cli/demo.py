"""`affidavit demo`: the whole way once, on the repo's own scanned letter, with everything that is promised shown."""

import asyncio
import time
from pathlib import Path

import grpc
import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from affidavit.ingress.v1 import document_pb2 as ingress_pb2
from affidavit.ingress.v1 import document_pb2_grpc as ingress_grpc
from affidavit.libs.errors import from_rpc_error
from affidavit.libs.evidence.receipt import VerificationError, verify_receipt, write_receipt
from affidavit.libs.rpc import connect
from affidavit.libs.runtime import DataFolder
from affidavit.tools.cli.exits import Exit, exit_for, fail
from affidavit.tools.cli.inputs import write_atomically
from affidavit.tools.cli.ocr import page_text
from affidavit.tools.cli.verify import read_log_key
from affidavit.tools.client import document
from affidavit.tools.client.document import Page
from affidavit.tools.stack.session import session

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "letter-scan.pdf"


def demo(
    out: Path = typer.Option(Path("build/demo"), "--out", help="folder for the result and the receipt"),
    example: Path = typer.Option(EXAMPLE, "--file", help="document to read"),
) -> None:
    """Start the services, read a scanned letter, print its text, verify its receipt, stop the services."""
    asyncio.run(_demo(out, example))


async def _demo(out: Path, example: Path) -> None:
    console = Console(highlight=False, soft_wrap=True)
    begin = time.monotonic()
    console.print("[bold]1.[/bold] starting audit, preprocess, ocr and ingress …")
    async with session(console.print) as stack, connect(stack.address) as channel:
        data = stack.data or DataFolder.default()
        pids = ", ".join(f"{s.name} {s.pid}" for s in stack.stack.services) if stack.stack else stack.address
        console.print(f"   ready after {time.monotonic() - begin:.1f} s (pids: {pids})")
        console.print(f"[bold]2.[/bold] streaming {example.name} ({example.stat().st_size:,} bytes, pictures only)")
        try:
            answer = await _read(ingress_grpc.DocumentServiceStub(channel), example, console)
        except grpc.aio.AioRpcError as broken:
            error = from_rpc_error(broken, "ingress")
            fail(error.message, exit_for(error))
        result_path, receipt_path = out / f"{example.stem}.json", out / f"{example.stem}.receipt.json"
        write_atomically(result_path, answer.result)
        write_receipt(receipt_path, answer.receipt)
        console.print(
            f"[bold]3.[/bold] the receipt: record {answer.receipt.index} of the log, under this signed checkpoint"
        )
        for line in answer.receipt.checkpoint.note.decode().splitlines():
            console.print(f"   │ {line}", style="dim", markup=False)
        console.print("[bold]4.[/bold] verifying: leaf, inclusion proof, checkpoint signature, result and input")
        try:
            key = read_log_key(data.log_public_key)
            verify_receipt(answer.receipt, key, result=result_path.read_bytes(), input=[example.read_bytes()])
        except VerificationError as fault:
            fail(f"the receipt does not verify: {fault}", Exit.UNVERIFIED)
        console.print("   [green]verified[/green]; again, offline, at any time:")
        command = f"affidavit verify {receipt_path} --result {result_path} --input {_relative(example)}"
        console.print(f"   {command}", style="bold", markup=False)
        console.print("[bold]5.[/bold] stopping the services")
    console.print(f"   done in {time.monotonic() - begin:.1f} s")


async def _read(stub: ingress_grpc.DocumentServiceStub, example: Path, console: Console) -> document.Document:
    columns = (TextColumn("   reading"), BarColumn(bar_width=32), MofNCompleteColumn(), TextColumn("pages"))
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True) as bar, example.open("rb") as file:
        task = bar.add_task("reading", total=None)

        def on_page(page: Page) -> None:
            confidence = page.text.confidence / 100
            title = f"page {page.text.page_number}, confidence {confidence:.1f} %, record {page.receipt.index}"
            console.print(f"   ── {title} ──", style="cyan", markup=False)
            for line in page_text(page.text).splitlines():
                console.print(f"   {line}", markup=False)

        def on_progress(progress: ingress_pb2.Progress) -> None:
            bar.update(task, total=progress.selected_count or None, completed=progress.done_count)

        info = await stub.GetServiceInfo(ingress_pb2.GetServiceInfoRequest())
        bundle = f"{info.bundle.name}@{info.bundle.version}"
        request_id = document.request_id(document.file_digest(file), (), bundle)
        return await document.recognize(stub, file, request_id=request_id, on_page=on_page, on_progress=on_progress)


def _relative(path: Path) -> Path:
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
