"""Prometheus metrics of the preprocess service."""

from prometheus_client import Counter, Gauge, Histogram

pages = Counter("affidavit_preprocess_pages_total", "Pages drawn")
# code: the reason's name.
failures = Counter("affidavit_preprocess_failures_total", "Documents and pages that could not be read", ["code"])
# code: crashed, timeout, cancelled, recycled, died_idle, protocol.
restarts = Counter("affidavit_preprocess_worker_restarts_total", "Parser processes replaced", ["code"])
# code: no_room (shared memory full or missing), resend, asked, half_closed.
inline = Counter("affidavit_preprocess_inline_pages_total", "Pages whose pixels went inline", ["code"])
leased_bytes = Gauge("affidavit_preprocess_leased_bytes", "Page images in shared memory")
spool_bytes = Gauge("affidavit_preprocess_spool_bytes", "Uploads on disk")
documents = Gauge("affidavit_preprocess_active_documents", "Documents uploaded or drawn now")
waiting = Gauge("affidavit_preprocess_waiting_documents", "Documents that wait for a parser process")
page_seconds = Histogram(
    "affidavit_preprocess_page_duration_seconds",
    "Time to draw a page",
    buckets=(0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5, 30),
)
# code: the feature's name; 1 in force, 0 refused by the kernel.
sandbox_features = Gauge("affidavit_preprocess_sandbox_features", "Parts of the parsers' sandbox", ["code"])
