"""`python -m affidavit.services.ingress`: the ingress process."""

from pydantic import Field

from affidavit.ingress.v1 import document_pb2_grpc as ingress_grpc
from affidavit.libs.rpc import RpcSettings, ServiceHost, run_service
from affidavit.libs.runtime import default_address, software
from affidavit.services.ingress.document_service import DocumentServicer, Limits
from affidavit.services.ingress.peers import Peers


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


async def serve(settings: IngressSettings) -> None:
    host = ServiceHost("ingress", settings)
    limits = Limits(
        settings.max_documents,
        settings.look_ahead,
        settings.document_deadline_s,
        settings.max_upload_bytes,
    )
    peers = Peers(settings.preprocess, settings.ocr, settings.audit)
    servicer = DocumentServicer(peers, limits, software("ingress"))
    ingress_grpc.add_DocumentServiceServicer_to_server(servicer, host.server)
    await host.run(canary=servicer.canary, close=servicer.close)


def main() -> None:
    run_service(IngressSettings, "ingress", serve)


if __name__ == "__main__":
    main()
