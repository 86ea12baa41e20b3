"""`affidavit audit show`: one record."""

import typer

from affidavit.audit.v1 import audit_pb2
from affidavit.libs.evidence.note import TreeHead
from affidavit.tools.cli.audit.access import with_log
from affidavit.tools.cli.audit.table import print_card, write_line


def show(
    index: int = typer.Argument(min=0, help="index of the record"),
    json: bool = typer.Option(False, "--json", help="the leaf's exact bytes"),
) -> None:
    """Show one record."""
    receipt = with_log(lambda log, _: log.GetRecord(audit_pb2.GetRecordRequest(index=index))).receipt
    if json:
        write_line(receipt.leaf)
        return
    head = TreeHead.unverified(receipt.checkpoint.note)
    salt = "kept" if receipt.salt else "erased: its commitments cannot be opened any more"
    print_card(receipt.leaf, [("log", f"{head.origin}, {head.size} records"), ("salt", salt)])
