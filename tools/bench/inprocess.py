"""The same work without services: pages drawn by preprocess's own code, read by ocr's own pipeline, in one process.

usage: python -m affidavit.tools.bench.inprocess MANIFEST [--at-once N]

Prints one JSON object: pages, render_wall_s, render_cpu_s (drawing, one page after another), ocr_wall_s, ocr_cpu_s
(reading the drawn pages, N at once).
"""

import argparse
import asyncio
import json
import os
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from affidavit.libs.models import ModelFolder, default_models_folder
from affidavit.libs.runtime import engine_threads
from affidavit.libs.settings import load
from affidavit.services.ocr.pipeline import OcrPipeline
from affidavit.services.preprocess.settings import PreprocessSettings
from affidavit.services.preprocess.worker import pdf, picture
from affidavit.services.preprocess.worker.area import Area
from affidavit.services.preprocess.worker.document import open_document
from affidavit.tools.bench.ocr_pages import accuracy_files

Page = NDArray[np.uint8]


def draw(files: list[Path]) -> list[Page]:
    """Every page of the files, as preprocess draws them."""
    limits = load(PreprocessSettings, "preprocess").values.worker_limits()
    area_fd = os.memfd_create("area")
    os.truncate(area_fd, limits.area_bytes)
    area = Area(area_fd, limits.area_bytes)
    pdf.initialise()
    picture.initialise()
    pages: list[Page] = []
    for file in files:
        descriptor = os.open(file, os.O_RDONLY)
        document = open_document(descriptor, (), limits)
        for index in range(document.page_count):
            drawn = document.draw(index, area)
            view = (
                area.grey(drawn.width, drawn.height) if drawn.channels == 1 else area.colour(drawn.width, drawn.height)
            )
            pages.append(view.copy())
        document.close()
    return pages


async def read(pages: list[Page], at_once: int) -> tuple[float, float]:
    """Wall and CPU seconds of reading the pages, `at_once` at a time, with models loaded and warm."""
    pipeline = OcrPipeline(ModelFolder(default_models_folder()).bundle("document"), threads=engine_threads())
    await pipeline.read(pages[0])
    slots = asyncio.Semaphore(at_once)

    async def one(page: Page) -> None:
        async with slots:
            await pipeline.read(page)

    wall, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(one(page) for page in pages))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    await pipeline.close()
    return wall, cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("manifest", type=Path)
    parser.add_argument("--at-once", type=int, default=2)
    arguments = parser.parse_args()
    files = [file.path for file in accuracy_files(arguments.manifest)]
    wall, cpu = time.perf_counter(), time.process_time()
    pages = draw(files)
    render_wall, render_cpu = time.perf_counter() - wall, time.process_time() - cpu
    ocr_wall, ocr_cpu = asyncio.run(read(pages, arguments.at_once))
    figures = {"render_wall_s": render_wall, "render_cpu_s": render_cpu, "ocr_wall_s": ocr_wall, "ocr_cpu_s": ocr_cpu}
    print(json.dumps({"pages": len(pages), **figures}))


if __name__ == "__main__":
    main()
