"""Answer a document on services that start for it alone: a data folder, log, keys and caches that go when it is done.

Nothing reaches the log that holds the record: the throw-away stack writes to a log of its own.
"""

import os
import shutil
import tempfile
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from affidavit.evidence.v1 import evidence_pb2
from affidavit.ingress.v1 import document_pb2_grpc as ingress_grpc
from affidavit.libs.models import default_models_folder
from affidavit.libs.rpc import connect
from affidavit.libs.runtime import DataFolder, shared_memory_folder
from affidavit.tools.client import document
from affidavit.tools.client.document import Page
from affidavit.tools.replay.record import Recorded
from affidavit.tools.stack import plan
from affidavit.tools.stack.supervisor import Report, StartFailed, Supervisor

# What shapes an answer. All else (addresses, folders, witnesses) belongs to the stack that runs, and would be shared.
_KEPT = {
    "ocr": ("models_folder",),
    "preprocess": (
        "page_pixels",
        "page_side",
        "image_pixels",
        "max_pages",
        "max_upload_bytes",
        "page_timeout_s",
        "document_timeout_s",
        "worker_memory_bytes",
    ),
}


@dataclass(frozen=True)
class Replayed:
    """The new answer."""

    result: bytes
    pages: tuple[bytes, ...]  # each page's exact bytes, in order
    receipts: tuple[evidence_pb2.Receipt, ...]  # of the pages, from the throw-away log: for their steps


async def answer_again(recorded: Recorded, input: Path, password: str, report: Report) -> Replayed:
    """Read `input` with the bundle, options and engine threads of the record.

    Args:
        password: of an encrypted document; the log does not have it.

    Raises:
        StartFailed: the services did not come up; their logs stay.
        grpc.aio.AioRpcError: what ingress says.
    """
    pages: list[Page] = []
    with _scratch(recorded) as folder:
        data, sockets = DataFolder(folder / "home"), folder / "s"
        sockets.mkdir()
        stack_plan = plan.on_sockets(sockets, data)
        # Not announced: nobody may join it.
        supervisor = Supervisor(stack_plan, data, folder / "logs", report=report, private=True, announced=False)
        async with supervisor as stack, connect(stack.address) as channel:
            with input.open("rb") as file:
                answer = await document.recognize(
                    ingress_grpc.DocumentServiceStub(channel),
                    file,
                    pages=recorded.page_ranges,
                    password=password,
                    bundle=recorded.leaf.bundle or "",
                    on_page=pages.append,
                )
    return Replayed(answer.result, tuple(p.result for p in pages), tuple(p.receipt for p in pages))


def models_folder() -> Path:
    """Where the replay will find bundles: the ocr service's setting, else the repository's own."""
    configured = _kept(os.environ).get("AFFIDAVIT_OCR_MODELS_FOLDER")
    return Path(configured) if configured else default_models_folder()


@contextmanager
def _scratch(recorded: Recorded) -> Generator[Path]:
    """A folder for a while, and an environment that points there."""
    before = dict(os.environ)
    folder = Path(tempfile.mkdtemp(prefix="affidavit-replay-"))
    shared = folder / "shm"
    if os.access(shared_memory_folder().parent, os.W_OK):
        shared = Path(tempfile.mkdtemp(prefix="affidavit-replay-", dir=shared_memory_folder().parent))
    kept = _kept(before)
    for name in [n for n in os.environ if n.startswith("AFFIDAVIT_")]:
        del os.environ[name]
    os.environ |= kept | {
        "AFFIDAVIT_CONFIG": os.devnull,
        "AFFIDAVIT_RUNTIME": str(folder),
        "AFFIDAVIT_SHM": str(shared),
        "AFFIDAVIT_OCR_BUNDLE": recorded.leaf.bundle or "",
    }
    if recorded.threads:
        os.environ["AFFIDAVIT_OCR_THREADS"] = str(recorded.threads)
    try:
        yield folder
    except StartFailed:
        shutil.rmtree(folder / "home", ignore_errors=True)  # the error names a log in the folder
        raise
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    else:
        shutil.rmtree(folder)
    finally:
        os.environ.clear()
        os.environ |= before
        shutil.rmtree(shared, ignore_errors=True)


def _kept(environ: Mapping[str, str]) -> dict[str, str]:
    """The settings that shape an answer, from the environment and the settings file, as environment."""
    path = Path(environ.get("AFFIDAVIT_CONFIG", "affidavit.yaml"))
    content: Any = (yaml.safe_load(path.read_text("utf-8")) if path.is_file() else None) or {}
    kept: dict[str, str] = {}
    for service, names in _KEPT.items():
        section: dict[str, Any] = content.get(service) or {}
        for name in names:
            variable = f"AFFIDAVIT_{service}_{name}".upper()
            if variable in environ:
                kept[variable] = environ[variable]
            elif name in section:
                kept[variable] = str(section[name])
    return kept
