"""Settings of the audit service."""

from pathlib import Path

from pydantic import Field, SecretStr, field_validator

from affidavit.libs.evidence.keysource import KeySource
from affidavit.libs.rpc import RpcSettings
from affidavit.libs.runtime import DataFolder, default_address
from affidavit.services.audit.archive.retention import MIN_RETENTION_DAYS


class AuditSettings(RpcSettings):
    """Settings of the audit service."""

    address: str = Field(default_address("audit"), description="host:port or unix:/path to listen on")
    home: str = Field(
        default_factory=lambda: str(DataFolder.default().root), description="data folder; the log is in its audit/"
    )
    head_folder: str = Field(
        "", description="folder of the signed head, best on another filesystem; empty for audit/head in the data folder"
    )
    tiles_folder: str = Field(
        "", description="folder of the published log (C2SP tiles, checkpoint); empty for audit/tiles in the data folder"
    )
    key: str = Field(
        "", description="the log's private key: a PEM file, or a pkcs11: URI (RFC 7512); empty for keys/log.key"
    )
    key_module: str = Field("", description="PKCS#11 library of the key's token, where the URI has no module-path")
    key_pin_file: str = Field("", description="file of the token's PIN, where the URI has no pin-source")
    key_pin: SecretStr = Field(SecretStr(""), description="the token's PIN; a file of it is better")
    publish_interval_s: float = Field(1.0, gt=0, le=3600, description="seconds between two publications, at least")
    max_batch: int = Field(1024, ge=1, le=4096, description="records that one disk sync makes durable, at most")
    queue_bound: int = Field(4096, ge=1, le=65_536, description="records waiting for the disk; beyond it streams wait")
    witnesses: str = Field(
        "", description="witnesses, separated by spaces, each name+id+base64=http://host:port; empty for none"
    )
    witness_quorum: int = Field(1, ge=1, le=16, description="so many of the witnesses make a checkpoint cosigned")
    witness_interval_s: float = Field(60.0, ge=0.1, le=86_400, description="seconds between two submissions")
    timestamp_authority: str = Field(
        "", description="RFC 3161 authority: http(s)://…, or development (openssl, proves nothing); empty for none"
    )
    timestamp_roots: str = Field("", description="PEM file of the authority's root certificates; needed with a URL")
    timestamp_interval_s: float = Field(3600.0, ge=0.1, le=86_400, description="seconds between two timestamps")
    scrub_records_per_s: float = Field(
        2000.0, ge=0, le=1_000_000, description="records that the background scrub reads a second, at most; 0 for none"
    )
    scrub_interval_s: float = Field(
        86_400.0, ge=0, le=31_536_000, description="seconds between the end of a whole scrub and the next one"
    )

    archive: str = Field(
        "", description="where records are archived: a folder, or s3://bucket/prefix; empty for none by schedule"
    )
    archive_endpoint: str = Field("", description="URL of an S3 store other than Amazon's; empty for Amazon's")
    archive_interval_s: float = Field(3600.0, ge=0.1, le=86_400, description="seconds between two passes of archiving")
    archive_segment_records: int = Field(4096, ge=1, le=65_536, description="records in an archived segment, at most")
    archive_keep_local_days: int = Field(
        -1, ge=-1, le=36_500, description="days after which archived records are in the archive alone; -1 for never"
    )
    retention_days: int = Field(MIN_RETENTION_DAYS, le=36_500, description="days that the archive keeps a record")
    models_folder: str = Field("", description="folder of model and bundle cards; empty for the repository's own")

    @field_validator("retention_days")
    @classmethod
    def _long_enough(cls, days: int) -> int:
        if days < MIN_RETENTION_DAYS:
            raise ValueError(f"records are kept {MIN_RETENTION_DAYS} days at least, not {days}")
        return days

    @property
    def archive_place(self) -> str:
        """The archive, also where none is written by schedule: a folder in the data folder."""
        return self.archive or str(self.home_path / "audit" / "archive")

    @property
    def home_path(self) -> Path:
        """The data folder."""
        return Path(self.home).expanduser()

    @property
    def key_source(self) -> KeySource:
        """Where the log's private key is."""
        return KeySource(self.key, self.key_module, self.key_pin_file, self.key_pin.get_secret_value())

    @property
    def head_path(self) -> Path | None:
        """The signed head's folder; None for its place in the data folder."""
        return Path(self.head_folder).expanduser() if self.head_folder else None

    @property
    def tiles_path(self) -> Path:
        """The published log's folder."""
        return Path(self.tiles_folder).expanduser() if self.tiles_folder else self.home_path / "audit" / "tiles"
