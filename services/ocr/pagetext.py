"""A page's reading as the contract says it: integers, page geometry, result bytes, evidence."""

import hashlib
from importlib.metadata import version

import numpy as np

from affidavit.document.v1 import document_pb2
from affidavit.evidence.v1 import evidence_pb2
from affidavit.libs.engines import Engine
from affidavit.libs.models import Member
from affidavit.services.ocr import lines
from affidavit.services.ocr.geometry import Floats
from affidavit.services.ocr.pipeline import OcrPipeline, PageReading

SOFTWARE = f"affidavit-ocr {version('affidavit')}"
RESCAN = "rescan"


def page_text(image: document_pb2.PageImage, reading: PageReading) -> document_pb2.PageText:
    """The reading in the page's geometry: 1/100 pt, or 1/100 source pixel with `pixel_scale`."""
    scale = np.array([image.page_width / image.width, image.page_height / image.height])
    limit = np.array([image.page_width, image.page_height])

    def quad(corners: Floats) -> document_pb2.Quad:
        # A box may reach out of the page by its margin; nobody needs corners there.
        x1, y1, x2, y2, x3, y3, x4, y4 = np.rint(np.clip(corners * scale, 0, limit)).astype(int).ravel().tolist()
        return document_pb2.Quad(x1=x1, y1=y1, x2=x2, y2=y2, x3=x3, y3=y3, x4=x4, y4=y4)

    def word(word: lines.Word) -> document_pb2.Word:
        return document_pb2.Word(text=word.text, quad=quad(word.quad), confidence=_ten_thousandths(word.confidence))

    return document_pb2.PageText(
        page_number=image.page_number,
        status=document_pb2.PAGE_STATUS_UNCERTAIN if reading.uncertain else document_pb2.PAGE_STATUS_OK,
        width=image.page_width,
        height=image.page_height,
        pixel_scale=image.pixel_scale,
        rotation=reading.rotation,
        blank=not reading.lines,
        confidence=round(reading.confidence * 10_000),
        suggestion=RESCAN if reading.uncertain else "",
        lines=[
            document_pb2.Line(
                text=line.text,
                quad=quad(line.quad),
                confidence=_ten_thousandths(line.confidence),
                words=[word(w) for w in line.words],
            )
            for line in reading.lines
        ],
    )


def steps(
    pipeline: OcrPipeline, image: document_pb2.PageImage, reading: PageReading, result: bytes
) -> list[evidence_pb2.StepEvidence]:
    """Evidence of both models: the image becomes boxes, the boxes (with the image) become the result."""
    members = pipeline.bundle.members
    return [
        _step(pipeline.detector.engine, members["detection"], image.sha256, reading.boxes_digest),
        _step(
            pipeline.recognizer.engine, members["recognition"], reading.boxes_digest, hashlib.sha256(result).digest()
        ),
    ]


def _step(engine: Engine, member: Member, input_digest: bytes, output_digest: bytes) -> evidence_pb2.StepEvidence:
    return evidence_pb2.StepEvidence(
        service="ocr",
        software=SOFTWARE,
        model=member.card.model_id,
        version=member.card.version,
        model_hash=member.model_hash,
        engine=engine.name,
        engine_version=engine.version,
        precision=engine.precision,
        threads=engine.threads,
        device_id=engine.device,
        input_digest=input_digest,
        output_digest=output_digest,
    )


def _ten_thousandths(confidence: tuple[float, ...]) -> int:
    return round(lines.mean(confidence) * 10_000)
