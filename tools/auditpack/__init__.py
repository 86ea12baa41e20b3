"""audit-pack: one zip that an auditor checks with `openssl` and the standard library, with nothing of ours installed.

collect.py asks the log for a record, what it refers to, and all proofs against one checkpoint; archive.py lays them out as
the zip; verify.py travels in the zip and is written from the RFCs alone; README.txt says the same checks by hand.
"""
