"""`affidavit audit`: read the evidence log, prove what is in it, guard it, pack it for an auditor. One file a command."""

import typer

from affidavit.tools.cli.audit import (
    archive,
    backup,
    check,
    export,
    forget,
    fsck,
    key,
    ls,
    monitor,
    pack,
    prove,
    replay,
    show,
    standby,
    tail,
    witness,
)

app = typer.Typer(help="Read, prove, guard and pack the evidence log.", no_args_is_help=True, rich_markup_mode=None)
app.command("ls")(ls.ls)
app.command("show")(show.show)
app.command("prove")(prove.prove)
app.command("check")(check.check)
app.command("tail")(tail.tail)
app.command("pack")(pack.pack)
app.command("export")(export.export)
app.command("verify-export")(export.verify_export)
app.command("replay")(replay.replay)
app.command("forget")(forget.forget)
app.command("fsck")(fsck.fsck)
app.command("backup")(backup.backup)
app.command("restore")(backup.restore)
app.command("repair")(backup.repair)
app.command("standby")(standby.standby)
app.command("promote")(standby.promote)
app.command("witness")(witness.witness)
app.command("monitor")(monitor.monitor)
app.add_typer(key.app, name="key")
app.add_typer(archive.app, name="archive")
