"""`python -m affidavit.services.audit`: the evidence log's process.

Exit codes: 0 stopped as asked, 2 bad settings, 3 the log is in use or its disk refuses, 4 the log is damaged or
was taken over by another server.
"""

import asyncio
import gc
import sys
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence import scrubstate
from affidavit.libs.evidence.note import NoteError
from affidavit.libs.evidence.timestamps import FOLDER, TimestampError
from affidavit.libs.models import default_models_folder
from affidavit.libs.rpc import ServiceHost
from affidavit.libs.rpc.polling import poll_where_calls_complete
from affidavit.libs.settings import SettingsError, load
from affidavit.libs.telemetry import configure_logging, get_logger
from affidavit.services.audit.appender import Appender
from affidavit.services.audit.archive.archiving import Archiving, Rules
from affidavit.services.audit.archive.elsewhere import from_archive
from affidavit.services.audit.archive.namedfiles import NamedFiles
from affidavit.services.audit.archive.objects import ObjectStore
from affidavit.services.audit.archive.places import log_verifiers, open_archive
from affidavit.services.audit.log import EvidenceLog
from affidavit.services.audit.opening import LogFolders
from affidavit.services.audit.publishing import Published, Publisher
from affidavit.services.audit.scrub import Scrub
from affidavit.services.audit.servicer import AuditServicer
from affidavit.services.audit.settings import AuditSettings
from affidavit.services.audit.tilescrub import TileScrub
from affidavit.services.audit.timestamping import Timestamping, authority
from affidavit.services.audit.watch import HeadWatch
from affidavit.services.audit.witnessat import WitnessAt

if TYPE_CHECKING:
    from affidavit.services.audit.cosigning import Cosigning

# The writer thread gives the interpreter lock away at each sync and needs it back; Python's default of 5 ms would make
# it wait longer for the event loop than for the disk.
SWITCH_INTERVAL_S = 0.0005


async def serve(
    settings: AuditSettings,
    log: EvidenceLog,
    published: Published,
    cosigning: "Cosigning | None",
    timestamping: Timestamping | None,
) -> None:
    """Serve `log` until SIGTERM or SIGINT, and close it."""
    host = ServiceHost("audit", settings)
    watch = HeadWatch(log, host.draining)
    appender = Appender(log, settings.max_batch, settings.queue_bound, watch.moved)
    publisher = Publisher(log, published, settings.publish_interval_s)
    archiving = _archiving(settings, log, appender)
    servicer = AuditServicer(log, appender, watch, publisher, archiving, host.draining)
    servicer.serve(host.server)
    interval_s = settings.archive_interval_s if settings.archive else None
    tasks = [asyncio.create_task(archiving.run(interval_s), name="archiving")]
    if cosigning is not None:
        await cosigning.first()  # before anything is appended: a witness may know that another server took over
        tasks.append(asyncio.create_task(cosigning.run(settings.witness_interval_s), name="cosigning"))
    if timestamping is not None:
        tasks.append(asyncio.create_task(timestamping.run(settings.timestamp_interval_s), name="timestamping"))
    if settings.scrub_records_per_s:
        scrub = Scrub(log, TileScrub(log, published), settings.home_path / "audit" / scrubstate.FILE)
        passes = scrub.run(settings.scrub_records_per_s, settings.scrub_interval_s, lambda: appender.busy)
        tasks.append(asyncio.create_task(passes, name="scrub"))

    async def close() -> None:
        for task in tasks:  # they read the log
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await servicer.close()

    await host.run(canary=servicer.canary, close=close)


def _archiving(settings: AuditSettings, log: EvidenceLog, appender: Appender) -> Archiving:
    models = Path(settings.models_folder) if settings.models_folder else default_models_folder()
    keys = settings.home_path / "keys"
    keep = settings.archive_keep_local_days
    rules = Rules(
        timedelta(days=settings.retention_days),
        settings.archive_segment_records,
        None if keep < 0 else timedelta(days=keep),
    )
    named = NamedFiles(models, keys, settings.home_path / "models")
    verifiers = lambda: log_verifiers(keys, log.head.tree.origin)  # noqa: E731
    return Archiving(log, _opening(settings), named, rules, appender.on_writer, verifiers)


def _opening(settings: AuditSettings) -> Callable[[], ObjectStore]:
    return lambda: open_archive(settings.archive_place, settings.archive_endpoint)


def _check_archive(settings: AuditSettings) -> None:
    """Refuse to start with an archive that keeps nothing; one that does not answer now is asked again later."""
    try:
        _opening(settings)().check()
    except AffidavitError as error:
        if error.reason != "SERVICE_UNAVAILABLE":
            raise SettingsError(error.message) from None
        get_logger("audit").warning("archive_unavailable", message=error.message)


def _cosigning(log: EvidenceLog, witnesses: Sequence[WitnessAt], quorum: int, side: Path) -> "Cosigning | None":
    if not witnesses:
        return None
    from affidavit.services.audit.cosigning import Cosigning  # its HTTP client takes 0.3 s to import

    return Cosigning(log, witnesses, quorum, side)


def main() -> int:
    try:
        settings = load(AuditSettings, "audit", sys.argv[1:]).values
        witnesses = [WitnessAt.parse(text) for text in settings.witnesses.split()]
        if witnesses and len({witness.key.key.public_bytes_raw() for witness in witnesses}) < settings.witness_quorum:
            raise NoteError(f"witness_quorum is {settings.witness_quorum}, more than there are witnesses' keys")
    except (SettingsError, NoteError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    configure_logging("audit", settings.log_level)
    poll_where_calls_complete()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    home = settings.home_path
    side = home / "audit" / "side"
    try:
        if settings.archive:
            _check_archive(settings)
        folders = LogFolders.below(home, settings.head_path, settings.key_source)
        log = EvidenceLog(folders, from_archive(_opening(settings)))
        published = Published(log, settings.tiles_path)
        stamps = authority(settings.timestamp_authority, settings.timestamp_roots, side)
    except AffidavitError as error:
        sys.stderr.write(f"{error.reason}: {error.message}\n")
        return 4 if error.reason in ("LOG_DAMAGED", "LOG_FENCED") else 3
    except (TimestampError, SettingsError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except OSError as error:
        sys.stderr.write(f"LOG_UNAVAILABLE: {error}\n")
        return 3
    get_logger("audit").info("log_opened", origin=log.head.tree.origin, records=log.head.tree.size)
    cosigning = _cosigning(log, witnesses, settings.witness_quorum, side)
    timestamping = Timestamping(log, stamps, home / "audit" / FOLDER) if stamps else None
    gc.freeze()  # what is there now stays: no collection between two commits has to look at it
    asyncio.run(serve(settings, log, published, cosigning, timestamping))
    return 0


if __name__ == "__main__":
    sys.exit(main())
