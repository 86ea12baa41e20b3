"""The reading that readiness is earned by: a picture of known text through the same path as every page."""

import cv2
import numpy as np

from affidavit.services.ocr.geometry import Pixels
from affidavit.services.ocr.pipeline import OcrPipeline

TEXT = "proof 2048"


def picture() -> Pixels:
    """Gray, 96 x 320: `TEXT`, black on white."""
    page = np.full((96, 320), 255, np.uint8)
    cv2.putText(page, TEXT, (24, 62), cv2.FONT_HERSHEY_DUPLEX, 1.4, 0, 2, cv2.LINE_AA)
    return page


async def check(pipeline: OcrPipeline) -> None:
    """One inference at the head of the queues.

    Raises:
        RuntimeError: it reads something else, or an engine has finished nothing for too long while work waits.
    """
    stalled = [batcher.name for batcher in pipeline.batchers if batcher.health().stalled]
    if stalled:
        raise RuntimeError(f"no batch has finished for too long: {', '.join(stalled)}")
    reading = await pipeline.read(picture(), canary=True)
    text = " ".join(line.text for line in reading.lines)
    if text != TEXT:
        raise RuntimeError(f"the canary reads {text!r} instead of {TEXT!r}")
