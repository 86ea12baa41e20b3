"""The archive: what goes in comes back, is read back before anything is released, and cannot be taken out.

Every test that names `objects` runs against a folder, against moto's S3 server, and against SeaweedFS (both slow), which
enforces Object Lock wholly. moto enforces no shortening and checks no checksum: what we do ourselves is asserted there.
"""

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from affidavit.audit.v1 import audit_pb2
from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence.segment import Manifest
from affidavit.libs.models import ModelFolder, default_models_folder
from affidavit.services.audit import opening as opening_module
from affidavit.services.audit.append_stream import entry_of
from affidavit.services.audit.archive import archiving as archiving_module
from affidavit.services.audit.archive.folder import FolderStore
from affidavit.services.audit.archive.objects import ObjectStore
from affidavit.services.audit.archive.s3 import S3Store
from affidavit.services.audit.archive.verify import ArchiveReport, list_archive, verify_archive
from affidavit.services.audit.backup import back_up
from affidavit.services.audit.fsck import check_log
from affidavit.services.audit.log import InArchive, Proven
from affidavit.services.audit.offline import Here, silent
from affidavit.services.audit.opening import LogFolders
from affidavit.services.audit.reading import list_records
from affidavit.services.audit.repair import repair
from tests.contract.archive_log import RETENTION, ArchivedLog, FaultyStore
from tests.contract.audit_process import item
from tests.contract.s3_server import CREDENTIALS, S3Server, serving

COUNT = 40
KEPT = 6  # newest records that are never released
RELEASED = 32  # of whole segments of 16
SLOW = pytest.param("seaweedfs", marks=pytest.mark.slow)


def said(request: pytest.FixtureRequest, server: S3Server) -> S3Server:
    request.config.pluginmanager.get_plugin("terminalreporter").write_line(f" S3 API server: {server.name}")
    return server


@pytest.fixture(scope="module")
def moto(request, tmp_path_factory):
    for server in serving("moto", tmp_path_factory.mktemp("moto")):
        yield said(request, server)


@pytest.fixture(scope="module")
def seaweedfs(request, tmp_path_factory):
    for server in serving("seaweedfs", tmp_path_factory.mktemp("seaweedfs")):
        yield said(request, server)


@pytest.fixture(autouse=True)
def credentials(monkeypatch) -> None:
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(params=["moto", SLOW])
def server(request) -> S3Server:
    return request.getfixturevalue(request.param)


@pytest.fixture(params=["folder", pytest.param("moto", marks=pytest.mark.slow), SLOW])
def objects(request, tmp_path) -> ObjectStore:
    if request.param == "folder":
        return FolderStore(tmp_path / "archive")
    server: S3Server = request.getfixturevalue(request.param)
    return S3Store(server.bucket(), "evidence/", server.url)


@pytest.fixture(autouse=True)
def newest_kept(monkeypatch) -> None:
    """A log of 10,000 and more would only be slower."""
    for module in (archiving_module, opening_module):
        monkeypatch.setattr(module, "CHECKED_RECORDS", KEPT)


@pytest.fixture
def made(tmp_path):
    """Makes logs with an archive; closes them."""
    logs: list[ArchivedLog] = []

    def make(objects: ObjectStore, name: str = "home", models: Path | None = None, count: int = COUNT) -> ArchivedLog:
        archived = ArchivedLog(tmp_path / name, objects, models or default_models_folder())
        logs.append(archived)
        if count and not archived.log.head.tree.size:
            archived.append(0, count - 1)
        return archived

    yield make
    for archived in logs:
        archived.close()


def verify(archived: ArchivedLog, *, alone: bool = False) -> ArchiveReport:
    known = None if alone else archived.log.ledger.segments
    return verify_archive(archived.objects, archived.verifiers, known, datetime.now(UTC), silent)


def proof(proven: Proven) -> tuple:
    return proven.index, proven.leaf, proven.salt, proven.head, list(proven.path)


async def listed(archived: ArchivedLog) -> list[bytes]:
    answers = list_records(archived.log, audit_pb2.ListRecordsRequest())
    return [record.leaf async for answer in answers for record in answer.records]


async def test_every_record_is_in_the_archive_and_it_verifies_with_the_public_key_alone(made, objects) -> None:
    archived = made(objects)
    assert await archived.archive() == COUNT
    assert await archived.archive() == 0
    report = verify(archived, alone=True)
    assert (report.findings, report.segments, report.records, report.covered) == ([], 3, COUNT, 0)
    assert report.cut_short == []
    archived.append(COUNT, COUNT + 3)
    assert await archived.archive() == 4
    manifests = [entry.manifest for entry in list_archive(objects)]
    assert [(m.first, m.last) for m in manifests] == [(0, 15), (16, 31), (32, 39), (40, 43)]
    for manifest in manifests:
        assert RETENTION <= manifest.retain_until - manifest.newest_time <= RETENTION + timedelta(seconds=1)
    assert verify(archived).findings == []


async def test_a_released_record_is_answered_from_the_archive_with_the_proof_that_it_had(made, objects) -> None:
    archived = made(objects)
    before = [proof(archived.log.record(index)) for index in range(COUNT)]
    leaves = await listed(archived)
    await archived.archive()
    assert await archived.release() == RELEASED
    assert [archived.log.is_released(n) for n in (0, 31, 32, COUNT - 1)] == [True, True, False, False]
    assert archived.log._open.store.leaf(31) is None
    assert [proof(archived.log.record(index)) for index in range(COUNT)] == before
    assert await listed(archived) == leaves
    archived.close()
    again = made(objects, count=0)  # a start knows what was released
    assert [proof(again.log.record(index)) for index in range(COUNT)] == before
    assert await again.release() == 0


async def test_what_was_released_is_checked_and_backed_up_from_the_archive(made, objects, tmp_path) -> None:
    archived = made(objects)
    await archived.archive()
    await archived.release()
    archived.close()
    folders, tiles = LogFolders.below(archived.home), archived.home / "audit" / "tiles"
    elsewhere = archived.log._elsewhere
    report = check_log(folders, tiles, silent, elsewhere=elsewhere)
    assert (report.findings, report.released) == ([], RELEASED)
    (without,) = check_log(folders, tiles, silent).findings  # no archive named: said, and not called a missing record
    assert (without.part, without.what[:16]) == ("archive", "records 0 to 31:")
    back_up(folders, tmp_path / "copy", silent, with_keys=False, elsewhere=elsewhere)
    copied = check_log(LogFolders.below(tmp_path / "copy"), tmp_path / "none", silent, private_key=False)
    assert (copied.findings, copied.size, copied.released) == ([], COUNT, 0)


async def test_a_leaf_that_is_missing_and_was_not_released_is_still_damage(made, objects) -> None:
    archived = made(objects)
    await archived.archive()
    await archived.release()
    archived.log._open.store.keep_notes({}, range(35, 36))
    with pytest.raises(AffidavitError, match="record 35 is missing from the store") as caught:
        archived.log.record(35)
    assert caught.value.reason == "LOG_DAMAGED"


@pytest.mark.parametrize("puts", range(7))
async def test_an_upload_that_was_cut_short_is_taken_up_with_the_same_names_and_bytes(made, objects, puts) -> None:
    archived = made(objects, count=20)
    whole = FaultyStore(objects)
    archived.objects = cut = FaultyStore(objects, dies_after=puts)
    with pytest.raises(ConnectionResetError):
        await archived.archive()
    assert len(cut.put_bytes) == puts
    archived.append(20, 29)  # the log goes on meanwhile; the plan stands
    archived.close()
    archived = made(whole, count=0)
    segments = len(archived.log.ledger.segments)
    assert await archived.archive() == 30 - (16 if segments else 0)
    put_again = set(cut.put_bytes) & set(whole.put_bytes)
    assert put_again == set()  # what is there is used
    report = verify(archived)
    assert (report.findings, report.records, report.cut_short, segments) == ([], 30, [], puts // 4)


async def test_wrong_bytes_read_back_leave_everything_local(made, objects) -> None:
    archived = made(objects)
    for name in ("entries", "checkpoint", "manifest.json", "files/"):
        archived.objects = FaultyStore(
            objects, reading=lambda key, data, name=name: data[:-1] + b"?" if name in key else data
        )
        with pytest.raises((AffidavitError, ConnectionError)) as caught:
            await archived.archive()
        assert caught.value.reason == "HASH_MISMATCH"
        assert archived.log.ledger.size == 0
        assert await released_or_refused(archived) == 0
    archived.objects = objects
    assert await archived.archive() == COUNT
    archived.objects = FaultyStore(objects, reading=lambda key, data: data[:-1] + b"?" if "entries" in key else data)
    with pytest.raises(AffidavitError, match=r"no version of segments/0.*/entries has the bytes that were archived"):
        await archived.release()
    assert not archived.log.is_released(0)
    archived.objects = objects
    assert await archived.release() == RELEASED


async def released_or_refused(archived: ArchivedLog) -> int:
    try:
        return await archived.release()
    except AffidavitError:
        return 0


async def test_wrong_bytes_in_the_archive_are_a_hash_mismatch_and_never_a_record(made, objects) -> None:
    archived = made(objects)
    await archived.archive()
    await archived.release()
    assert archived.log.record(3).leaf
    archived.close()
    archived = made(FaultyStore(objects, reading=lambda key, data: data.replace(b'"ok"', b'"no"')), count=0)
    with pytest.raises(AffidavitError, match="record 3 is in the archive alone") as caught:
        archived.log.record(3)
    assert caught.value.reason == "HASH_MISMATCH"
    assert archived.log.record(35).leaf


async def test_a_log_that_lost_its_notes_finds_its_segments_in_the_archive_again(made, objects) -> None:
    archived = made(objects)
    await archived.archive()
    known = archived.log.ledger.segments
    archived.log._open.store.keep_notes(
        {b"archive/segment/" + segment.first.to_bytes(8, "big"): None for segment in known}
    )
    archived.close()
    seen = FaultyStore(objects)
    archived = made(seen, count=0)
    assert archived.log.ledger.size == 0
    assert await archived.archive() == COUNT
    assert (archived.log.ledger.segments, seen.put_bytes) == (known, {})


async def test_an_archive_of_another_log_or_of_another_past_is_refused(made, objects, tmp_path) -> None:
    archived = made(objects)
    archived.close()
    shutil.copytree(archived.home, tmp_path / "fork")
    archived = made(objects, count=0)
    await archived.archive()
    with pytest.raises(AffidavitError, match=r"is of log .*; give each log a folder or prefix of its own"):
        await made(objects, "other").archive()
    fork = made(objects, "fork", count=0)
    assert await fork.archive() == COUNT  # the same past
    fork.append(COUNT, COUNT + 4)
    archived.append(COUNT, COUNT)
    await archived.archive()
    with pytest.raises(AffidavitError, match=f"record {COUNT} is not this log's: another past"):
        await fork.archive()


@pytest.fixture
def models(tmp_path) -> Path:
    return shutil.copytree(default_models_folder(), tmp_path / "models")


async def test_cards_manifests_and_keys_are_kept_as_long_as_the_newest_record_that_names_them(
    made, objects, models
) -> None:
    bundle = ModelFolder(models).bundle("document", "promoted")
    steps = [
        {"service": "ocr", "model": m.card.model_id, "version": m.card.version, "model_hash": m.model_hash}
        for m in bundle.members.values()
    ]
    archived = made(objects, models=models, count=0)
    archived.append(0, 1, bundle=bundle.reference, steps=steps)
    await archived.archive()
    (first,) = [entry.manifest for entry in list_archive(objects)]
    names = {file.name for file in first.files}
    assert {"keys/log.pub", f"models/bundles/document/{bundle.card.version}/bundle.yaml"} <= names
    for member in bundle.members.values():
        folder = f"models/{member.card.model_id}/{member.card.version}"
        assert {f"{folder}/model.yaml", f"{folder}/model.manifest"} <= names
    assert first.missing == ()
    card = next(file for file in first.files if file.name.endswith("model.yaml"))

    def dates() -> set[datetime | None]:
        return {objects.read(copy).retain_until for copy in objects.copies(card.key)}

    assert dates() == {first.retain_until}
    shutil.rmtree(models / "bundles" / "document")  # the repository moves on, the record does not
    archived.log._newest_time += timedelta(days=30)
    archived.append(2, 2, bundle=bundle.reference, steps=steps)
    await archived.archive()
    second = [entry.manifest for entry in list_archive(objects)][-1]
    assert any(text.startswith(f"bundle {bundle.reference}: ") for text in second.missing)
    assert any("no manifest with SHA-256" in text for text in second.missing)
    shutil.copytree(default_models_folder(), models, dirs_exist_ok=True)
    archived.append(3, 3, bundle=bundle.reference, steps=steps)
    await archived.archive()
    third = [entry.manifest for entry in list_archive(objects)][-1]
    assert third.retain_until > first.retain_until + timedelta(days=29)
    assert dates() == {third.retain_until}
    report = verify(archived)
    assert (report.findings, report.missing_files) == ([], len(second.missing))


def here(archived: ArchivedLog) -> Here:
    return Here(LogFolders.below(archived.home), archived.home / "audit" / "tiles", lambda: archived.objects)


async def test_a_log_whose_disk_is_lost_comes_back_from_its_archive_and_its_keys(made, objects, tmp_path) -> None:
    archived = made(objects)
    before = [proof(archived.log.record(index)) for index in range(COUNT)]
    await archived.archive()
    archived.close()
    shutil.rmtree(archived.home / "audit")
    head = repair(here(archived), silent, from_archive=True)
    assert head.size == COUNT
    again = made(objects, count=0)
    assert [proof(again.log.record(n))[:2] for n in range(COUNT)] == [known[:2] for known in before]
    assert again.log.head.tree == before[0][3].tree
    assert again.log.indices_of("default", "r-7") == [7]
    again.append(COUNT, COUNT + 2)
    assert await again.archive() == COUNT + 3  # found there and checked, then what is new
    assert verify(again).findings == []


async def test_an_archive_that_lacks_what_the_head_signed_or_is_damaged_repairs_nothing(made, tmp_path) -> None:
    objects = FolderStore(tmp_path / "archive")
    archived = made(objects)
    await archived.archive()
    archived.append(COUNT, COUNT)
    archived.close()
    shutil.move(archived.home / "audit" / "store", tmp_path / "lost")
    with pytest.raises(AffidavitError, match=f"ends after {COUNT} records, the signed head covers {COUNT + 1}"):
        repair(here(archived), silent, from_archive=True)
    (archived.home / "audit" / "head" / "checkpoint").unlink()
    segment = sorted((tmp_path / "archive" / "segments").iterdir())[1]
    shutil.move(segment, tmp_path / "segment")
    with pytest.raises(AffidavitError, match="does not go on where the one before ends"):
        repair(here(archived), silent, from_archive=True)
    shutil.move(tmp_path / "segment", segment)
    assert list((archived.home / "audit").glob("store*")) == []
    assert repair(here(archived), silent, from_archive=True).size == COUNT


# S3 alone.


def versions(server: S3Server, objects: S3Store, key: str) -> list[str]:
    return [copy.version for copy in objects.copies(key)]


async def test_no_object_can_be_deleted_and_what_stands_over_one_changes_nothing(made, server) -> None:
    bucket, client = server.bucket(), server.client()
    archived = made(S3Store(bucket, "", server.url))
    await archived.archive()
    await archived.release()
    assert verify(archived).covered == 0
    keys = list(archived.objects.keys(""))
    assert len(keys) == 3 * 3 + 1
    for key in keys:
        (copy,) = archived.objects.copies(key)
        for bypass in ({}, {"BypassGovernanceRetention": True}):
            with pytest.raises(ClientError, match=r"Access ?Denied"):
                client.delete_object(Bucket=bucket, Key=key, VersionId=copy.version, **bypass)
        client.put_object(Bucket=bucket, Key=key, Body=b"another past")
        client.delete_object(Bucket=bucket, Key=key)
        with pytest.raises(ClientError):
            client.get_object(Bucket=bucket, Key=key)  # as a careless reader sees it
    report = verify(archived)
    assert (report.findings, report.records) == ([], COUNT)
    assert report.covered == 3 * 4
    archived.close()
    archived = made(archived.objects, count=0)
    assert json.loads(archived.log.record(5).leaf)["request_id"] == "r-5"
    with pytest.raises(ClientError, match=r"not empty|BucketNotEmpty"):
        client.delete_bucket(Bucket=bucket)


async def test_a_date_is_not_brought_nearer_and_the_server_that_lets_it_is_found_out(made, server) -> None:
    bucket, client = server.bucket(), server.client()
    archived = made(S3Store(bucket, "", server.url))
    await archived.archive()
    assert verify(archived).findings == []
    (copy, *_) = archived.objects.copies(next(archived.objects.keys("segments/")))
    nearer = {"Mode": "COMPLIANCE", "RetainUntilDate": datetime.now(UTC) + timedelta(days=90)}
    shorten = lambda: client.put_object_retention(  # noqa: E731
        Bucket=bucket, Key=copy.key, VersionId=copy.version, Retention=nearer
    )
    if server.kind == "seaweedfs":
        with pytest.raises(ClientError, match="AccessDenied"):
            shorten()
        assert verify(archived).findings == []
    else:  # moto does not enforce it
        shorten()
        (finding,) = verify(archived).findings
        assert copy.key in finding
        assert "can be erased from" in finding
        with pytest.raises(AffidavitError, match="can be erased from"):
            await archived.release()
        assert not archived.log.is_released(0)


async def test_a_bucket_that_keeps_nothing_is_refused(made, server) -> None:
    S3Store(server.bucket(), "", server.url).check()
    archived = made(S3Store(server.bucket(locked=False), "", server.url), count=1)
    with pytest.raises(AffidavitError, match="has no Object Lock") as caught:
        await archived.archive()
    assert (caught.value.reason, archived.log.ledger.size) == ("INVALID_OPTION", 0)
    assert list(archived.objects.keys("")) == []
    with pytest.raises(AffidavitError, match="there is no bucket"):
        S3Store("not-made-yet", "", server.url).check()
    if server.kind == "moto":  # SeaweedFS, as Amazon's, refuses to suspend it
        suspended = server.bucket()
        server.client().put_bucket_versioning(Bucket=suspended, VersioningConfiguration={"Status": "Suspended"})
        with pytest.raises(AffidavitError, match="has versioning Suspended"):
            S3Store(suspended, "", server.url).check()


@pytest.mark.parametrize("minutes", [-6, 6])
async def test_clocks_that_differ_by_more_than_five_minutes_are_refused(made, server, minutes) -> None:
    bucket = server.bucket()

    def store(skew: timedelta) -> S3Store:
        return S3Store(bucket, "", server.url, now=lambda: datetime.now(UTC) + skew)

    store(timedelta(minutes=4)).check()
    store(timedelta(minutes=-4)).check()
    archived = made(store(timedelta(minutes=minutes)), count=1)
    with pytest.raises(AffidavitError, match=r"more than 5 minutes apart.*set the clock"):
        await archived.archive()
    assert list(archived.objects.keys("")) == []


@pytest.mark.slow
async def test_bytes_that_change_on_the_way_are_refused_by_the_server(made, seaweedfs) -> None:
    objects = S3Store(seaweedfs.bucket(), "", seaweedfs.url)
    until = (datetime.now(UTC) + RETENTION).replace(microsecond=0)
    objects.put("right", b"bytes", until)
    put = objects._client.put_object
    objects._client.put_object = lambda **asked: put(**asked | {"Body": b"other"})
    with pytest.raises(AffidavitError, match="BadDigest"):
        objects.put("wrong", b"bytes", until)
    assert list(objects.keys("")) == ["right"]


@pytest.fixture
def own(tmp_path):
    """A server that the test may stop."""
    yield from serving("moto", tmp_path / "server")


async def test_an_archive_that_does_not_answer_costs_its_records_alone(made, own) -> None:
    archived = made(S3Store(own.bucket(), "", own.url))
    await archived.archive()
    await archived.release()
    assert archived.log.record(0).leaf
    archived.close()
    own.stop()
    archived = made(archived.objects, count=0)  # its cache is empty, its archive gone
    with pytest.raises(AffidavitError, match=r"record 0 is in the archive alone: .*did not do") as caught:
        archived.log.record(0)
    assert (caught.value.reason, caught.value.code.name) == ("SERVICE_UNAVAILABLE", "UNAVAILABLE")
    archived.append(COUNT, COUNT + 9)
    assert archived.log.record(COUNT + 9).leaf
    assert len(archived.log.prove(0, COUNT + 10)) == 6  # proofs are local
    assert archived.log.append([entry_of(item("r-0"))]) == [InArchive(0)]  # and its caller's answer is UNAVAILABLE
    with pytest.raises(AffidavitError, match="did not do"):
        await archived.archive()
    assert archived.log.failure is None


# A folder: what a store with Object Lock does not allow, found by the check.


def changed_manifests(data: bytes) -> dict[str, bytes]:
    """Each member of a manifest changed in turn, its form kept."""
    manifest = json.loads(data)
    made: dict[str, bytes] = {}

    def other(value):
        if isinstance(value, bool) or value is None:
            return "00" * 32
        if isinstance(value, int):
            return value + 1
        if isinstance(value, str) and value.endswith("Z"):  # a time: another year, as well formed
            return f"2026{value[4:]}" if value[:4] != "2026" else f"2025{value[4:]}"
        if isinstance(value, str):
            last = "1" if value[-1:] == "0" else "0"
            return f"{value[:-1]}{last}" if value[-1:] in "0123456789abcdef" else f"{value[:-2]}0{value[-1]}"
        if isinstance(value, list):
            return [*value[:-1], other(value[-1])] if value else ["00" * 32]
        return {key: other(inner) for key, inner in value.items()}

    for name, value in manifest.items():
        made[name] = json.dumps(manifest | {name: other(value)}, separators=(",", ":"), sort_keys=True).encode()
        assert made[name] != data, name
    return made


async def test_every_part_of_a_segment_that_is_changed_or_gone_is_found(made, tmp_path) -> None:
    root = tmp_path / "archive"
    archived = made(FolderStore(root))
    await archived.archive()
    assert verify(archived).findings == []
    paths = [path for path in sorted(root.rglob("*")) if path.is_file() and path.suffix != ".retain-until"]
    assert len(paths) == 10
    checked = 0
    for path in paths:
        date = path.with_name(path.name + ".retain-until")
        whole, kept = path.read_bytes(), date.read_bytes()
        changes = {f"byte {at}": whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :] for at in (0, len(whole) // 2)}
        changes |= {"shorter": whole[:-1], "longer": whole + b"\n", "empty": b""}
        changes |= changed_manifests(whole) if path.name == "manifest.json" else {}
        for what, data in changes.items():
            path.chmod(0o644)
            path.write_bytes(data)
            assert verify(archived).findings, (path, what)
            checked += 1
        path.unlink()
        assert verify(archived).findings, path
        path.write_bytes(whole)
        date.write_bytes(b"2027-01-01T00:00:00Z\n")
        assert verify(archived).findings, date
        date.unlink()
        assert verify(archived).findings, date
        date.write_bytes(kept)
    assert checked == 10 * 5 + 3 * 13
    assert verify(archived).findings == []


async def test_the_chain_alone_finds_a_changed_manifest_that_another_follows(made, tmp_path) -> None:
    root = tmp_path / "archive"
    archived = made(FolderStore(root))
    await archived.archive()
    manifests = sorted(root.rglob("manifest.json"))
    for path in manifests[:-1]:
        whole = path.read_bytes()
        manifest = Manifest.parse(whole)
        shorter = whole.replace(str(manifest.retain_until.year).encode(), b"2026", 1)
        path.chmod(0o644)
        for change in (shorter, *changed_manifests(whole).values()):
            path.write_bytes(change)
            assert verify(archived, alone=True).findings, change
        path.write_bytes(whole)
    assert verify(archived, alone=True).findings == []


async def test_segments_signed_by_another_key_or_cut_out_of_the_chain_are_found(made, tmp_path) -> None:
    root = tmp_path / "archive"
    archived, other = made(FolderStore(root)), made(FolderStore(tmp_path / "other-archive"), "other")
    await archived.archive()
    await other.archive()
    report = verify_archive(archived.objects, other.verifiers, None, datetime.now(UTC), silent)
    assert len(report.findings) == 3
    assert all("no known key signed it" in f or "is wrong" in f for f in report.findings)
    middle = sorted(path for path in (root / "segments").iterdir())[1]
    shutil.rmtree(middle)
    (finding,) = verify(archived, alone=True).findings
    assert "begins at record 32, the one before ends at 15" in finding
    assert any("is missing; it was read back" in finding for finding in verify(archived).findings)


async def test_a_folder_keeps_its_files_read_only_and_no_date_moves_nearer(made, tmp_path) -> None:
    objects = FolderStore(tmp_path / "archive")
    await made(objects, count=3).archive()
    (copy,) = objects.copies(next(objects.keys("segments/")))
    path = tmp_path / "archive" / copy.key
    assert path.stat().st_mode & 0o777 == 0o444
    until = objects.read(copy).retain_until
    assert until is not None
    objects.extend(copy, until + timedelta(days=1))
    with pytest.raises(AffidavitError, match="a date is never moved nearer"):
        objects.extend(copy, until)
    with pytest.raises(AffidavitError, match="is there with other bytes"):
        objects.put(copy.key, b"other", until)
    assert objects.read(copy).retain_until == until + timedelta(days=1)
