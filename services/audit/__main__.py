"""`python -m affidavit.services.audit`: the evidence log's process.

Exit codes: 0 stopped as asked, 2 bad settings, 3 the log is in use or its disk refuses, 4 the log is damaged.
"""

import asyncio
import sys
from pathlib import Path

from affidavit.audit.v1 import audit_pb2_grpc
from affidavit.libs.errors import AffidavitError
from affidavit.libs.rpc import ServiceHost
from affidavit.libs.settings import SettingsError, load
from affidavit.libs.telemetry import configure_logging, get_logger
from affidavit.services.audit.appender import Appender
from affidavit.services.audit.log import EvidenceLog
from affidavit.services.audit.opening import LogFolders
from affidavit.services.audit.servicer import AuditServicer
from affidavit.services.audit.settings import AuditSettings
from affidavit.services.audit.watch import HeadWatch

# The writer thread gives the interpreter lock away at each sync and needs it back; Python's default of 5 ms would make
# it wait longer for the event loop than for the disk.
SWITCH_INTERVAL_S = 0.0005


async def serve(settings: AuditSettings, log: EvidenceLog) -> None:
    """Serve `log` until SIGTERM or SIGINT, and close it."""
    host = ServiceHost("audit", settings)
    watch = HeadWatch(log, host.draining)
    appender = Appender(log, settings.max_batch, settings.queue_bound, watch.moved)
    servicer = AuditServicer(log, appender, watch, host.draining)
    audit_pb2_grpc.add_AuditServiceServicer_to_server(servicer, host.server)
    await host.run(canary=servicer.canary, close=servicer.close)


def main() -> int:
    try:
        settings = load(AuditSettings, "audit", sys.argv[1:]).values
    except SettingsError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    configure_logging("audit", settings.log_level)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    head = Path(settings.head_folder).expanduser() if settings.head_folder else None
    try:
        log = EvidenceLog(LogFolders.below(Path(settings.home).expanduser(), head))
    except AffidavitError as error:
        sys.stderr.write(f"{error.reason}: {error.message}\n")
        return 4 if error.reason == "LOG_DAMAGED" else 3
    except OSError as error:
        sys.stderr.write(f"LOG_UNAVAILABLE: {error}\n")
        return 3
    get_logger("audit").info("log_opened", origin=log.head.tree.origin, records=log.head.tree.size)
    asyncio.run(serve(settings, log))
    return 0


if __name__ == "__main__":
    sys.exit(main())
