"""`audit-pack`, the console script. It lies here so that the command's package is loaded before what its commands share."""

from affidavit.tools.auditpack.command import main

__all__ = ["main"]
