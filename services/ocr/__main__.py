"""The ocr service's process: settings, models, server, reload of scheduling settings on SIGHUP."""

import asyncio
import signal
import sys
from pathlib import Path

from pydantic import Field

from affidavit.libs import runtime
from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence.keys import KeyFileError
from affidavit.libs.evidence.modelkey import model_key
from affidavit.libs.models import ModelFolder, default_models_folder
from affidavit.libs.models.folder import Bundle, describe
from affidavit.libs.models.signed import SignedModels
from affidavit.libs.rpc import RpcSettings, ServiceHost
from affidavit.libs.runtime import DataFolder
from affidavit.libs.settings import SettingsError, load
from affidavit.libs.telemetry import get_logger
from affidavit.ocr.v1 import ocr_pb2_grpc
from affidavit.services.ocr.pipeline import OcrPipeline, Scheduling
from affidavit.services.ocr.service import BUNDLE, OcrService

_log = get_logger("ocr")


class OcrSettings(RpcSettings):
    """Reads page images. Send SIGHUP to take over changed max_batch, max_wait_us, sigma and hold_us."""

    address: str = Field(runtime.default_address("ocr"), description="host:port or unix:/path to listen on")
    home: str = Field(default_factory=lambda: str(DataFolder.default().root), description="data folder")
    models_folder: str = Field("", description="folder of model and bundle cards; empty for the repository's own")
    bundle: str = Field("promoted", description="bundle version or alias to load")
    threads: int = Field(0, ge=0, le=1024, description="engine threads; 0 for $AFFIDAVIT_THREADS, else every core")
    pages_per_call: int = Field(4, ge=1, le=64, description="pages of one call at work or unread by its caller")
    pages_at_once: int = Field(0, ge=0, le=256, description="pages at work in all; 0 for two more than threads")
    max_batch: int = Field(4, ge=1, le=64, description="crops in a recognition batch, at most the bundle's most_rows")
    max_wait_us: int = Field(500_000, ge=0, le=3_600_000_000, description="a crop that waited so long goes first")
    sigma: float = Field(1.0, ge=0, le=100, description="spread of costs in a batch, standard deviations")
    hold_us: int = Field(2_000, ge=0, le=1_000_000, description="an idle engine waits so long for a fuller batch")

    def scheduling(self) -> Scheduling:
        return Scheduling(self.max_batch, self.max_wait_us, self.sigma, self.hold_us)


async def serve(settings: OcrSettings, argv: list[str]) -> None:
    host = ServiceHost("ocr", settings)
    folder = ModelFolder(Path(settings.models_folder) if settings.models_folder else default_models_folder())
    threads = settings.threads or runtime.engine_threads()
    bundle = folder.bundle(BUNDLE, settings.bundle)
    pipeline = OcrPipeline(bundle, threads=threads, scheduling=settings.scheduling())
    _log.info("loaded", threads=threads, **describe(bundle))
    await asyncio.to_thread(_sign, bundle, settings.home)
    service = OcrService(
        pipeline,
        folder,
        runtime.shared_memory_folder(),
        pages_per_call=settings.pages_per_call,
        pages_at_once=settings.pages_at_once or threads + 2,
    )
    ocr_pb2_grpc.add_OcrServiceServicer_to_server(service, host.server)

    def reload() -> None:
        try:
            pipeline.configure(load(OcrSettings, "ocr", argv).values.scheduling())
        except SettingsError as error:  # what runs is fine: keep it
            _log.error("reload_refused", error=str(error))
        else:
            _log.info("reloaded")

    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reload)
    await host.run(canary=service.canary, close=pipeline.close)


def _sign(bundle: Bundle, home: str) -> None:
    """Keep the bundle, whose weights were verified, as signed at its first use; where nothing can be kept, pages are read
    all the same, and whoever makes the first pack signs it."""
    data = DataFolder(Path(home).expanduser())
    try:
        SignedModels(data.models).keep(bundle, lambda: model_key(data.keys))
    except (OSError, KeyFileError) as error:
        _log.warning("models_not_signed", message=f"{error}; packs are signed when they are made", home=str(data.root))


def main(argv: list[str]) -> int:
    try:
        settings = load(OcrSettings, "ocr", argv).values
        asyncio.run(serve(settings, argv))
    except SettingsError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2
    except AffidavitError as error:
        print(f"{error.reason}: {error}", file=sys.stderr)  # noqa: T201
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
