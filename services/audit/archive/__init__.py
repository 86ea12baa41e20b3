"""The archive: segments of the log in an object store whose objects cannot be erased before their date.

    log ▶ planning (which records) ▶ building (segment) ▶ writing (put, read back) ▶ ledger (the store remembers it)
                                                                     release ▶ leaves leave the store, hashes stay

What a segment is: `libs/evidence/segment.py`. Where it goes: `objects.py` and one file per kind of store. When:
`archiving.py`. Reading a record that is only there: `elsewhere.py`. Checking all of it: `verify.py`.
"""
