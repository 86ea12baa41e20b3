"""The accuracy set as page images, and the OCR pipeline in process over them.

usage: python -m affidavit.tools.bench.ocr_pages OUT.jsonl [--folder ../shared/data/ocr] [--at-once 2] [--only KIND]

Writes what ../shared/peers/ocr/score.py reads: one object a line with file, text, seconds, pages.
"""

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pypdfium2
from numpy.typing import NDArray
from PIL import Image, ImageOps

from affidavit.libs.models import ModelFolder, default_models_folder
from affidavit.libs.runtime import engine_threads
from affidavit.services.ocr.pipeline import OcrPipeline

PDF_DPI = 200


@dataclass(frozen=True)
class AccuracyFile:
    """One file of the set, as its manifest names it."""

    file: str
    kind: str
    path: Path


def accuracy_files(manifest: Path, only: str = "") -> list[AccuracyFile]:
    """The files of a manifest, in its order; their paths are relative to its folder.

    Raises:
        FileNotFoundError: the set is not there.
    """
    entries: list[dict[str, Any]] = [json.loads(line) for line in manifest.read_text("utf-8").splitlines() if line]
    return [
        AccuracyFile(e["file"], e["kind"], manifest.parent / e["file"])
        for e in entries
        if not only or e["kind"] == only
    ]


def page_images(path: Path) -> Iterator[NDArray[np.uint8]]:
    """Pages as BGR pixels, drawn and decoded as the peers' runners do."""
    if path.suffix.lower() == ".pdf":
        document = pypdfium2.PdfDocument(str(path))
        for i in range(len(document)):
            yield cast("Any", document[i]).render(scale=PDF_DPI / 72).to_numpy()[:, :, :3].copy()
        document.close()
        return
    image = ImageOps.exif_transpose(Image.open(path))
    if image.mode in ("RGBA", "LA", "P", "PA"):
        image = image.convert("RGBA")
        white = Image.new("RGBA", image.size, "white")
        white.alpha_composite(image)
        image = white
    yield np.ascontiguousarray(np.asarray(image.convert("RGB"))[:, :, ::-1])


async def read_file(pipeline: OcrPipeline, file: AccuracyFile) -> dict[str, Any]:
    """What score.py reads for one file."""
    begin = time.perf_counter()
    texts: list[str] = []
    for page in await asyncio.to_thread(lambda: list(page_images(file.path))):
        reading = await pipeline.read(page)
        texts.append("\n".join(line.text for line in reading.lines))
    seconds = round(time.perf_counter() - begin, 3)
    return {"file": file.file, "text": "\n".join(texts), "seconds": seconds, "pages": max(1, len(texts))}


async def read_all(pipeline: OcrPipeline, files: list[AccuracyFile], at_once: int) -> list[dict[str, Any]]:
    """Every file's text; `at_once` files are read at a time."""
    slots = asyncio.Semaphore(at_once)

    async def one(file: AccuracyFile) -> dict[str, Any]:
        async with slots:
            return await read_file(pipeline, file)

    return await asyncio.gather(*(one(file) for file in files))


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--folder", type=Path, default=Path("../shared/data/ocr"))
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    files = accuracy_files(arguments.folder / "manifest.jsonl", arguments.only)
    pipeline = OcrPipeline(ModelFolder(default_models_folder()).bundle("document"), threads=engine_threads())
    begin, cpu = time.perf_counter(), time.process_time()
    results = await read_all(pipeline, files, arguments.at_once)
    wall, cpu = time.perf_counter() - begin, time.process_time() - cpu
    batches = [batcher.stats() for batcher in pipeline.batchers]
    await pipeline.close()
    with arguments.out.open("w", encoding="utf-8") as out:
        out.writelines(json.dumps(result, ensure_ascii=False) + "\n" for result in results)
    pages = sum(result["pages"] for result in results)
    print(f"{pages} pages, {wall:.1f} s, {pages / wall:.2f} pages/s, {cpu:.1f} CPU s", file=sys.stderr)
    for stats in batches:
        print(f"{stats.taken} items in {stats.batches} batches, sizes {list(stats.sizes)}", file=sys.stderr)


if __name__ == "__main__":
    asyncio.run(main())
