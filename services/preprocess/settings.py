"""Settings of the preprocess service."""

from pydantic import Field

from affidavit.libs.rpc import RpcSettings
from affidavit.libs.runtime import engine_threads
from affidavit.services.preprocess.protocol import WorkerLimits


class PreprocessSettings(RpcSettings):
    """Documents to page images."""

    max_upload_bytes: int = Field(512 << 20, ge=1, le=4 << 30, description="largest document, bytes")
    upload_stall_s: float = Field(30.0, gt=0, le=3600, description="seconds without a message that end an upload")
    max_pages: int = Field(10_000, ge=1, le=1_000_000, description="most pages of a document")
    max_documents: int = Field(64, ge=1, le=10_000, description="documents uploaded or drawn at once; more are refused")
    release_timeout_s: float = Field(600.0, gt=0, le=86_400, description="seconds a caller may keep all its pages")
    spool: str = Field("", description="folder of uploads; empty: `spool` in the data folder")
    shared_memory_bytes: int = Field(1 << 30, ge=0, description="most bytes of page images in shared memory")

    workers: int = Field(0, ge=0, le=256, description="parser processes; 0: one a core")
    queue_timeout_s: float = Field(120.0, gt=0, le=3600, description="seconds a document waits for a parser process")
    turn_s: float = Field(2.0, gt=0, le=600, description="seconds a document keeps a parser while others wait")
    page_timeout_s: float = Field(30.0, gt=0, le=3600, description="seconds to open a document or draw a page")
    document_timeout_s: float = Field(1800.0, gt=0, le=86_400, description="seconds of parsing for one document")
    worker_memory_bytes: int = Field(1 << 30, ge=64 << 20, description="memory a parser may take, bytes")
    worker_documents: int = Field(500, ge=1, description="documents after which a parser process is replaced")
    worker_growth_bytes: int = Field(256 << 20, ge=1 << 20, description="growth after which a parser is replaced")
    page_pixels: int = Field(16_000_000, ge=10_000, le=21_000_000, description="most pixels of a page image")
    page_side: int = Field(10_000, ge=100, le=65_535, description="most pixels of a page image's longer side")
    image_pixels: int = Field(200_000_000, ge=10_000, description="most pixels of a picture that is decoded")

    def worker_limits(self) -> WorkerLimits:
        return WorkerLimits(
            memory_bytes=self.worker_memory_bytes,
            document_bytes=self.max_upload_bytes,
            # Its whole life: a worker is replaced once it has spent what one document may.
            cpu_s=int(2 * self.document_timeout_s) + 1,
            page_pixels=self.page_pixels,
            page_side=self.page_side,
            image_pixels=self.image_pixels,
        )

    def worker_count(self) -> int:
        return self.workers or engine_threads()
