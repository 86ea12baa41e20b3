"""The preprocess service's process."""

import resource
from pathlib import Path

from affidavit.libs.pageimages import LeaseFolder
from affidavit.libs.rpc import ServiceHost, run_service
from affidavit.libs.runtime import DataFolder, default_address, shared_memory_folder
from affidavit.preprocess.v1 import preprocess_pb2_grpc
from affidavit.services.preprocess.pool import WorkerPool
from affidavit.services.preprocess.service import PageService
from affidavit.services.preprocess.settings import PreprocessSettings
from affidavit.services.preprocess.spool import SpoolFolder


async def serve(settings: PreprocessSettings) -> None:
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))  # one a lease, beside sockets and uploads
    settings.address = settings.address or default_address("preprocess")
    host = ServiceHost("preprocess", settings)
    pool = WorkerPool(settings)
    spool = SpoolFolder(Path(settings.spool) if settings.spool else DataFolder.default().spool / "preprocess")
    leases = LeaseFolder(shared_memory_folder(), "preprocess", max_bytes=settings.shared_memory_bytes)
    service = PageService(settings, pool, spool, leases)
    preprocess_pb2_grpc.add_PageServiceServicer_to_server(service, host.server)
    await pool.start()
    await host.run(canary=service.canary, close=service.close)


if __name__ == "__main__":
    run_service(PreprocessSettings, "preprocess", serve)
