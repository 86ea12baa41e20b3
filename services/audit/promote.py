"""`affidavit audit promote`: a standby becomes the log, in the next epoch.

1. Catch up with what the log published, wherever it can still be read.
2. Compare with the newest checkpoint that anybody can show: the published ones, and the sizes that the witnesses have
   cosigned. A record under one of them that is not here refuses the promotion, by index, until `--accept-loss FIRST..LAST`
   says just those indices.
3. Sign the same tree in the next epoch, durably: from here on the old server is fenced wherever this checkpoint is seen.
4. Take the standby's mark away; append a record that says what happened, the accepted loss too; publish; submit to the
   witnesses.

After a crash before 4 the command is given again: it then signs one epoch higher, and no harm is done.
"""

import secrets
import sys
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field

from affidavit.audit.v1 import audit_pb2
from affidavit.evidence.v1 import evidence_pb2
from affidavit.libs import canonicaljson
from affidavit.libs.canonicaljson import Json
from affidavit.libs.errors import AffidavitError
from affidavit.libs.evidence.commitment import SALT_BYTES
from affidavit.libs.evidence.draft import HASH_BYTES
from affidavit.libs.evidence.durablefile import sync_folder
from affidavit.libs.evidence.epoch import epoch_of, with_epoch
from affidavit.libs.evidence.keys import KeyFileError, Signer
from affidavit.libs.evidence.note import NoteError, TreeHead
from affidavit.libs.evidence.submission import FENCED, Submission
from affidavit.libs.evidence.tilepaths import CHECKPOINT
from affidavit.libs.evidence.tiles import TileError
from affidavit.services.audit.entry import entry_of
from affidavit.services.audit.following import Follower, Forked, Source, refused
from affidavit.services.audit.head import HeadFile, SignedHead
from affidavit.services.audit.log import EvidenceLog
from affidavit.services.audit.offline import Here, Progress, Run, taken
from affidavit.services.audit.opening import LogLock
from affidavit.services.audit.publishing import Published
from affidavit.services.audit.standby import marked_source, open_follower
from affidavit.services.audit.witnessat import WitnessAt

_TIMEOUT_S = 10
_MAX_ANSWER_BYTES = 65_536


@dataclass
class Promotion:
    """What a promotion found and did."""

    head: TreeHead
    known: int = 0  # records under the newest checkpoint that anybody showed
    lost: str = ""  # FIRST..LAST, accepted
    epoch: int = 0
    notes: list[str] = field(default_factory=list[str])  # what could not be asked


def promote(here: Here, sources: Sequence[str], accept_loss: str) -> Promotion:
    """Make the standby of `here` the log.

    Args:
        sources: published logs to catch up with and to compare with, besides the one that was followed.
        accept_loss: `FIRST..LAST`, exactly what is missing; empty for none.

    Raises:
        AffidavitError: LOG_UNAVAILABLE: no standby, no key, or it still runs. LOG_DAMAGED: records are missing, or the
            past is another one. LOG_FENCED: a higher epoch is known.
    """
    followed = marked_source(here.folders)
    key = _key(here)
    lock = LogLock(here.folders.lock)
    try:
        follower = open_follower(here.folders)
        try:
            places = [Source.at(where) for where in dict.fromkeys((followed, *sources, str(here.tiles)))]
            done = _caught_up(follower, places, str(here.tiles))
            for witness in here.witnesses:
                _ask(witness, HeadFile(here.folders.head).read() or b"", follower, done)
        finally:
            follower.close()
        _judge_loss(done, accept_loss)
        done.epoch = epoch_of(done.head) + 1
        head = with_epoch(done.head, done.epoch)
        signed = SignedHead.sign(head, key)
        HeadFile(here.folders.head).replace(signed.note)
        if done.lost and (here.tiles / CHECKPOINT).exists():
            aside = here.tiles.with_name(f"{here.tiles.name}.before-epoch-{done.epoch}")
            here.tiles.rename(aside)  # they have what is lost: evidence, and perhaps its last copy
            done.notes.append(
                f"the tiles that were published before are kept in {aside}: they are evidence of the loss"
            )
        here.folders.standby.unlink()
        sync_folder(here.folders.standby.parent)
    finally:
        lock.release()
    _begin(here, done, followed)
    for witness in here.witnesses:
        _tell(witness, signed.note, done)
    return done


def _key(here: Here) -> Signer:
    try:
        return here.folders.key.load(here.folders.keys)
    except FileNotFoundError:
        path = here.folders.key.where(here.folders.keys)
        raise AffidavitError("LOG_UNAVAILABLE", f"{path} is missing: copy the log's key there (mode 0600)") from None
    except KeyFileError as error:
        raise AffidavitError("LOG_DAMAGED", str(error)) from None


def _caught_up(follower: Follower, places: Sequence[Source], own: str) -> Promotion:
    """Follow each place to its end, and remember the newest checkpoint that any of them shows."""
    known, notes = 0, list[str]()
    for source in places:
        try:
            published, _ = source.checkpoint(follower.keys)
            known = max(known, published.size)
            follower.follow(source)
        except Forked as error:
            raise refused(error) from None
        except NoteError as error:
            raise AffidavitError("LOG_DAMAGED", f"{source.where}: {error}") from None
        except FileNotFoundError:
            if source.where != own:
                notes.append(f"{source.where} has no checkpoint: not compared with it")
        except (OSError, TileError) as error:
            notes.append(f"{source.where} could not be read to its end: {error}")
    if follower.head is None:
        raise AffidavitError(
            "LOG_UNAVAILABLE", "the standby has no record and no checkpoint: there is nothing to promote"
        )
    return Promotion(follower.head, known, notes=notes)


def _judge_loss(done: Promotion, accept_loss: str) -> None:
    """Raises AffidavitError (LOG_DAMAGED) unless nothing known is missing, or what is missing was accepted."""
    size = done.head.size
    missing = f"{size}..{done.known - 1}" if done.known > size else ""
    if accept_loss != missing:
        if not missing:
            raise AffidavitError("INVALID_OPTION", f"--accept-loss {accept_loss}: no record is known to be missing")
        message = (
            f"the standby has {size} records, {done.known} are published or cosigned: records {size} to {done.known - 1} "
            "are not here. Bring back the published tiles or the old server's disk (affidavit audit promote --published "
            f"FOLDER|URL reads them), or give them up: --accept-loss {missing}"
        )
        raise AffidavitError("LOG_DAMAGED", message)
    done.lost = missing


def _begin(here: Here, done: Promotion, followed: str) -> None:
    """Open the log as any start does, append the first record of the epoch, publish."""
    body: dict[str, Json] = {
        "event": "log_promoted",
        "epoch": done.epoch,
        "followed": followed,
        "accepted_loss": done.lost or None,
    }
    draft = evidence_pb2.RecordDraft(
        tenant="affidavit",
        request_id=f"epoch-{done.epoch}-{secrets.token_hex(8)}",
        kind=evidence_pb2.RECORD_KIND_MODEL_EVENT,
        phase=evidence_pb2.RECORD_PHASE_SINGLE,
        status="ok",
        body_json=canonicaljson.dumps(body),
    )
    item = audit_pb2.AppendItem(
        step="single", content_digest=secrets.token_bytes(HASH_BYTES), draft=draft, salt=secrets.token_bytes(SALT_BYTES)
    )
    log = EvidenceLog(here.folders)
    try:
        (outcome,) = log.append([entry_of(item)])
        if isinstance(outcome, AffidavitError):
            raise outcome
        Published(log, here.tiles).publish(log.head)
        done.head = log.head.tree
    finally:
        log.close()


def _ask(witness: WitnessAt, note: bytes, follower: Follower, done: Promotion) -> None:
    """How many records the witness has cosigned; those must be the first ones that are here.

    Raises:
        AffidavitError: LOG_DAMAGED: they are not. LOG_FENCED: it has cosigned a higher epoch.
    """
    name, size = witness.key.name, done.head.size
    status, words = _submit(witness, Submission(0, [], note))
    if status == 409 and words.isdecimal():
        theirs = int(words)
        done.known = max(done.known, theirs)
        if theirs > size:
            return
        status, words = _submit(
            witness, Submission(theirs, follower.proof(theirs, size) if theirs < size else [], note)
        )
        if status in (409, 422) and not words.startswith(FENCED):
            message = (
                f"witness {name} has cosigned {theirs} records of this log that are not the first ones here: {words}"
            )
            raise AffidavitError("LOG_DAMAGED", message)
    if status == 422 and words.startswith(FENCED):
        raise AffidavitError("LOG_FENCED", f"witness {name} says {words}: another standby was promoted")
    if status != 200:
        done.notes.append(f"witness {name} does not answer (HTTP {status}: {words}): not compared with it")


def _tell(witness: WitnessAt, note: bytes, done: Promotion) -> None:
    """Have the first checkpoint of the epoch cosigned, so that the witness fences the old server."""
    status, words = _submit(witness, Submission(TreeHead.unverified(note).size, [], note))
    if status != 200:
        done.notes.append(
            f"witness {witness.key.name} has not cosigned epoch {done.epoch} yet (HTTP {status}: {words}): the service "
            "submits again once it runs; until then this witness does not fence the old server"
        )


def _submit(witness: WitnessAt, submission: Submission) -> tuple[int, str]:
    request = urllib.request.Request(f"{witness.url}/add-checkpoint", data=submission.body())
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
            return answer.status, answer.read(_MAX_ANSWER_BYTES).decode(errors="replace").strip()
    except urllib.error.HTTPError as error:
        return error.code, error.read(_MAX_ANSWER_BYTES).decode(errors="replace").strip()
    except OSError as error:
        return 0, str(error)


def main(argv: Sequence[str], run: Run) -> int:
    """The command, with the arguments after its name; its exit code."""
    (published, accept_loss), rest = taken(argv, "--published", "--accept-loss")

    def work(here: Here, _: Progress) -> int:
        done = promote(here, published.split(), accept_loss)
        lines = [*done.notes, f"log {done.head.origin}: promoted to epoch {done.epoch}, {done.head.size} records"]
        if done.lost:
            lines.append(f"given up: records {done.lost}, as the log's newest record says")
        lines.append("start the service on this data folder, and send callers here")
        sys.stdout.write("\n".join(lines) + "\n")
        return 0

    return run(rest, work)
