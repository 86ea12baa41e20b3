"""What this service swears to for a page."""

from affidavit.evidence.v1 import evidence_pb2
from affidavit.services.preprocess.protocol import Ready
from affidavit.services.preprocess.version import PREPROCESS_VERSION, SOFTWARE


class Evidence:
    """Steps of one document's pages."""

    def __init__(self, facts: Ready, media_type: str, document_sha256: bytes) -> None:
        self._is_pdf = media_type == "application/pdf"
        self._facts = facts
        self._document_sha256 = document_sha256

    def step(self, image_sha256: bytes = b"") -> evidence_pb2.StepEvidence:
        """The step of a page; without an image, of one that could not be drawn."""
        return evidence_pb2.StepEvidence(
            service="preprocess",
            software=SOFTWARE,
            version=PREPROCESS_VERSION,
            engine="pdfium" if self._is_pdf else "pillow",
            engine_version=self._facts.pdfium if self._is_pdf else self._facts.pillow,
            threads=1,
            device_id="cpu",
            input_digest=self._document_sha256,
            output_digest=image_sha256,
        )
