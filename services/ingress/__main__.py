"""`python -m affidavit.services.ingress`: the ingress process."""

from pathlib import Path

from pydantic import Field

from affidavit.ingress.v1 import document_pb2_grpc as ingress_grpc
from affidavit.libs.rpc import RpcSettings, ServiceHost, run_service
from affidavit.libs.runtime import DataFolder, default_address, software
from affidavit.services.ingress.appender import Appender, Appends
from affidavit.services.ingress.document_service import DocumentServicer, Limits
from affidavit.services.ingress.peers import Peers
from affidavit.services.ingress.spool import Spool
from affidavit.services.ingress.spooling import SpoolingAppender


class IngressSettings(RpcSettings):
    """The public edge."""

    address: str = Field(default_address("ingress"), description="host:port or unix:/path to listen on")
    preprocess: str = Field(
        default_address("preprocess"), description="preprocess: host:port list, or dns:///name:port"
    )
    ocr: str = Field(default_address("ocr"), description="ocr: host:port list, or dns:///name:port")
    audit: str = Field(default_address("audit"), description="audit: host:port")
    max_documents: int = Field(64, ge=1, le=10_000, description="documents read at once")
    look_ahead: int = Field(2, ge=1, le=16, description="pages of a document drawn before they are delivered")
    document_deadline_s: float = Field(3600.0, gt=0, le=86_400, description="longest time a document may take")
    max_upload_bytes: int = Field(512 << 20, ge=1, description="largest upload")
    home: str = Field(default_factory=lambda: str(DataFolder.default().root), description="data folder")
    spool: bool = Field(
        False, description="answer also while the log is down; records wait in spool/evidence and receipts say so"
    )
    spool_max_bytes: int = Field(1 << 30, ge=1 << 16, description="largest spool; beyond it calls fail")


async def serve(settings: IngressSettings) -> None:
    host = ServiceHost("ingress", settings)
    limits = Limits(
        settings.max_documents,
        settings.look_ahead,
        settings.document_deadline_s,
        settings.max_upload_bytes,
    )
    peers = Peers(settings.preprocess, settings.ocr, settings.audit)
    servicer = DocumentServicer(peers, _appender(settings, peers), limits, software("ingress"))
    ingress_grpc.add_DocumentServiceServicer_to_server(servicer, host.server)
    await host.run(canary=servicer.canary, close=servicer.close)


def _appender(settings: IngressSettings, peers: Peers) -> Appends:
    appender = Appender(peers.audit)
    folder = DataFolder(Path(settings.home).expanduser()).spool / "evidence"
    if not settings.spool and not folder.exists():
        return appender
    # What an earlier life spooled goes into the log, whatever is chosen now.
    return SpoolingAppender(appender, Spool(folder, settings.spool_max_bytes), closed=not settings.spool)


def main() -> None:
    run_service(IngressSettings, "ingress", serve)


if __name__ == "__main__":
    main()
