"""Monitor and witness go on over a key rotation once they are given the new key, and not before."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from affidavit.libs.evidence.keysource import KeySource
from affidavit.libs.evidence.submission import Submission
from affidavit.services.audit.append_stream import entry_of
from affidavit.services.audit.handovers import handovers
from affidavit.services.audit.log import EvidenceLog
from affidavit.services.audit.opening import LogFolders
from affidavit.services.audit.rotate import rotate
from affidavit.tools.witness.monitor import Monitor, NotAppendOnly
from affidavit.tools.witness.witness import Status, Witness
from tests.contract.audit_process import item


async def test_a_monitor_and_a_witness_go_on_with_the_new_key(tmp_path: Path) -> None:
    folders = LogFolders.below(tmp_path / "home")
    log = EvidenceLog(folders)
    log.append([entry_of(item("before"))])
    first = log.head
    log.close()
    rotate(folders, KeySource())
    log = EvidenceLog(folders)
    log.append([entry_of(item("after"))])

    async def prove(older: int, newer: int) -> Sequence[bytes]:
        return log.prove_consistency(older, newer)

    rotation = handovers(log)[0].verify()[1]
    monitor = Monitor(tmp_path / "monitor", rotation.old)
    assert (await monitor.see(first.note, prove)).size == 1
    with pytest.raises(NotAppendOnly, match="no known key signed it"):
        await monitor.see(log.head.note, prove)
    both = Monitor(tmp_path / "monitor", rotation.old, rotation.new)
    assert (await both.see(log.head.note, prove)).size == 3
    alone = Monitor(tmp_path / "monitor", rotation.new)  # what it remembers is the new key's now
    assert (await alone.see(log.head.note, prove)).size == 3

    submitted = [Submission(0, [], first.note), Submission(1, log.prove_consistency(1, 3), log.head.note)]
    witness = Witness(tmp_path / "witness", "witness.test", [rotation.old])
    statuses = [witness.add_checkpoint(one.body()).status for one in submitted]
    witness.close()
    assert statuses == [Status.COSIGNED, Status.UNTRUSTED]
    witness = Witness(tmp_path / "witness", "witness.test", [rotation.old, rotation.new])
    assert witness.add_checkpoint(submitted[1].body()).status is Status.COSIGNED
    witness.close()
    log.close()
