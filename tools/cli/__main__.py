"""`python -m affidavit.tools.cli`: the command without its console script."""

from affidavit.tools.cli import main

main()
