"""The log's metrics."""

from prometheus_client import Counter, Gauge, Histogram

records = Counter("affidavit_audit_records_total", "Records appended and acknowledged")
tree_leaves = Gauge("affidavit_audit_tree_leaves", "Records in the log")
failures = Counter("affidavit_audit_failures_total", "Failed writes that ended appending", ["code"])
queued = Gauge("affidavit_audit_queue_records", "Records waiting for the disk")
published_leaves = Gauge("affidavit_audit_published_leaves", "Records whose tiles and checkpoint are published")
publish_failures = Counter("affidavit_audit_publish_failures_total", "Passes of publishing that failed")
batch_records = Histogram(
    "affidavit_audit_batch_records",
    "Records that one disk sync made durable",
    buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096),
)
commit_seconds = Histogram(
    "affidavit_audit_commit_seconds",
    "Time of a group commit: leaves, store, signed head",
    buckets=(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 2, 10),
)
cosigned_leaves = Gauge(
    "affidavit_audit_cosigned_leaves", "Records under the newest checkpoint that the quorum cosigned"
)
cosigned_time = Gauge("affidavit_audit_cosigned_timestamp_seconds", "When the quorum last cosigned, POSIX; 0 for never")
witness_failures = Counter(
    "affidavit_audit_witness_failures_total", "Checkpoints that a witness did not cosign", ["code"]
)
timestamped_leaves = Gauge("affidavit_audit_timestamped_leaves", "Records under the newest timestamped checkpoint")
timestamped_time = Gauge(
    "affidavit_audit_timestamped_timestamp_seconds", "When a timestamp last covered the whole log, POSIX; 0 for never"
)
timestamp_failures = Counter(
    "affidavit_audit_timestamp_failures_total", "Checkpoints that the authority did not timestamp", ["code"]
)
archived_leaves = Gauge("affidavit_audit_archived_leaves", "Records in the archive, read back from it")
released_leaves = Gauge("affidavit_audit_released_leaves", "Records whose leaves are in the archive alone")
unarchived_time = Gauge(
    "affidavit_audit_unarchived_timestamp_seconds",
    "When the oldest record was stamped that the last pass of archiving left out, POSIX; 0 for none",
)
archive_failures = Counter("affidavit_audit_archive_failures_total", "Archiving or releasing that failed", ["code"])
scrubbed = Counter("affidavit_audit_scrubbed_records_total", "Records that the background scrub has checked")
scrub_position = Gauge("affidavit_audit_scrub_position_leaves", "Records that the scrub's running pass has checked")
scrub_pass_time = Gauge(
    "affidavit_audit_scrub_pass_timestamp_seconds", "When the scrub last ended a whole pass, POSIX; 0 for never"
)
scrub_findings = Gauge("affidavit_audit_scrub_findings_count", "Damages of the store that the scrub knows of")
scrub_damage = Counter("affidavit_audit_scrub_damage_total", "Damages of the store that the scrub met")
scrub_tiles = Counter("affidavit_audit_scrub_tiles_total", "Published tiles that were changed or gone, written again")
