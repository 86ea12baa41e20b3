"""An archive in an S3 bucket with Object Lock, every object locked in compliance mode: nobody can erase it before its
date, replace it or bring the date nearer, the bucket's owner and the root user included (Amazon S3 user guide, "Locking
objects with Object Lock").

Object Lock guards versions, not keys. A later version or a delete marker over an object is possible and changes
nothing: versions are asked for by their id, the oldest first.

An object is put in one request, so there are no multipart uploads to be left half done: a PUT is there whole or not at
all. Retention dates are read from the answer that carries the bytes; the credentials need s3:GetObjectRetention for it.
"""

import base64
import hashlib
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any

from affidavit.libs.errors import AffidavitError
from affidavit.services.audit.archive.objects import Copy, Kept

MAX_SKEW = timedelta(minutes=5)
_CONNECT_S, _READ_S, _ATTEMPTS = 5, 20, 2
_MODE = "COMPLIANCE"


class S3Store:
    """Objects below a prefix of a bucket; credentials and region by boto3's usual chain."""

    def __init__(
        self, bucket: str, prefix: str, endpoint: str = "", now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        """`prefix` is empty or ends in a slash; `endpoint` is the URL of a store other than Amazon's.

        Raises:
            AffidavitError: INVALID_OPTION: boto3 is not installed, or the endpoint is no URL.
        """
        try:
            import boto3
            from botocore.config import Config
            from botocore.exceptions import BotoCoreError, ClientError
        except ImportError:
            message = "an archive in S3 needs boto3: pip install 'affidavit[s3]'"
            raise AffidavitError("INVALID_OPTION", message, field="archive") from None
        self._bucket, self._prefix, self._now = bucket, prefix, now
        self._errors = (ClientError, BotoCoreError)
        config = Config(
            connect_timeout=_CONNECT_S,
            read_timeout=_READ_S,
            retries={"total_max_attempts": _ATTEMPTS, "mode": "standard"},
            s3={"addressing_style": "path"} if endpoint else {},
        )
        try:
            session = boto3.Session()
            self._client: Any = session.client(
                "s3", endpoint_url=endpoint or None, region_name=session.region_name or "us-east-1", config=config
            )
        except (ValueError, *self._errors) as error:
            raise AffidavitError("INVALID_OPTION", f"the archive's settings: {error}", field="archive") from None

    @property
    def place(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}"

    def check(self) -> None:
        versioning = self._ask("get_bucket_versioning")
        self._check_clock(versioning["ResponseMetadata"]["HTTPHeaders"].get("date", ""))
        lock = self._ask("get_object_lock_configuration")
        enabled = lock["ObjectLockConfiguration"].get("ObjectLockEnabled")
        if enabled != "Enabled":
            raise self._unlocked()
        if versioning.get("Status") != "Enabled":
            message = f"bucket {self._bucket} has versioning {versioning.get('Status') or 'off'}: without it nothing is locked"
            raise AffidavitError("INVALID_OPTION", f"{message}; switch it on, or name another bucket", field="archive")

    def put(self, key: str, data: bytes, retain_until: datetime) -> None:
        # With a condition where nothing is there yet: of two writers one is refused, and comes back to read.
        condition: dict[str, str] = {} if self.copies(key) else {"IfNoneMatch": "*"}
        self._ask(
            "put_object",
            Key=self._prefix + key,
            Body=data,
            ChecksumAlgorithm="SHA256",
            ChecksumSHA256=base64.b64encode(hashlib.sha256(data).digest()).decode(),
            ObjectLockMode=_MODE,
            ObjectLockRetainUntilDate=retain_until,
            **condition,
        )

    def copies(self, key: str) -> list[Copy]:
        whole = self._prefix + key
        found = [
            Copy(key, version["VersionId"], version["IsLatest"])
            for version in self._versions(whole)
            if version["Key"] == whole
        ]
        return found[::-1]  # S3 lists the newest first

    def read(self, copy: Copy) -> Kept:
        answer = self._ask("get_object", Key=self._prefix + copy.key, VersionId=copy.version)
        try:
            data: bytes = answer["Body"].read()
        except Exception as error:  # botocore's own, urllib3's, or the socket's
            raise AffidavitError("SERVICE_UNAVAILABLE", f"{self.place}{copy.key}: cut short: {error}") from error
        until = answer.get("ObjectLockRetainUntilDate")
        if until is None or answer.get("ObjectLockMode") != _MODE:
            return Kept(data, None)
        return Kept(data, until.astimezone(UTC))

    def extend(self, copy: Copy, retain_until: datetime) -> None:
        retention = {"Mode": _MODE, "RetainUntilDate": retain_until}
        key = self._prefix + copy.key
        self._ask("put_object_retention", Key=key, VersionId=copy.version, Retention=retention)

    def keys(self, prefix: str) -> Iterator[str]:
        last = None
        for version in self._versions(self._prefix + prefix):
            key: str = version["Key"].removeprefix(self._prefix)
            if key != last:
                yield key
            last = key

    def _versions(self, prefix: str) -> Iterator[dict[str, Any]]:
        """Versions, by key, the newest first; delete markers left out."""
        pages = self._client.get_paginator("list_object_versions").paginate(Bucket=self._bucket, Prefix=prefix)
        try:
            for page in pages:
                yield from page.get("Versions", [])
        except self._errors as error:
            raise self._failure("list_object_versions", error) from error

    def _ask(self, operation: str, **arguments: Any) -> dict[str, Any]:
        try:
            return getattr(self._client, operation)(Bucket=self._bucket, **arguments)
        except self._errors as error:
            raise self._failure(operation, error) from error

    def _failure(self, operation: str, error: Exception) -> AffidavitError:
        response: dict[str, Any] = getattr(error, "response", {})
        code = response.get("Error", {}).get("Code", "")
        if code == "ObjectLockConfigurationNotFoundError":
            return self._unlocked()
        if code == "NoSuchBucket":
            message = f"there is no bucket {self._bucket}; make one with Object Lock (docs/archive.md)"
            return AffidavitError("INVALID_OPTION", message, field="archive")
        if code == "RequestTimeTooSkewed":
            return AffidavitError("SERVICE_UNAVAILABLE", f"{self.place} refuses this machine's clock; set it (NTP)")
        return AffidavitError("SERVICE_UNAVAILABLE", f"the archive {self.place} did not do {operation}: {error}")

    def _unlocked(self) -> AffidavitError:
        message = (
            f"bucket {self._bucket} has no Object Lock: what is in it can be erased; make one with it "
            "(aws s3api create-bucket --object-lock-enabled-for-bucket, docs/archive.md)"
        )
        return AffidavitError("INVALID_OPTION", message, field="archive")

    def _check_clock(self, date: str) -> None:
        """Retention dates are computed by our clock and kept by theirs."""
        try:
            theirs = parsedate_to_datetime(date).astimezone(UTC)
        except ValueError:
            message = f"the archive {self.place} does not say what time it is, so that no clock can be compared"
            raise AffidavitError("SERVICE_UNAVAILABLE", message) from None
        ours = self._now()
        if abs(ours - theirs) > MAX_SKEW:
            message = (
                f"this machine's clock says {ours:%FT%TZ}, the archive's {theirs:%FT%TZ}: more than "
                f"{MAX_SKEW.seconds // 60} minutes apart, and retention dates would be wrong; set the clock (NTP)"
            )
            raise AffidavitError("SERVICE_UNAVAILABLE", message)
