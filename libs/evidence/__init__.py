"""Evidence: what a record says, how the log commits to it, and how anyone checks it offline.

    salt = new_salt()
    commitment = commit(salt, b"the result's bytes")          # commitment.py: SHA-256(salt ‖ bytes)
    leaf = leaf_bytes(draft, index, time, salt)               # record.py:     record v1, RFC 8785 JSON
    frontier.append(leaf_hash(leaf)); frontier.root()         # merkle.py:     RFC 6962
    note = sign_checkpoint(TreeHead(origin, size, root), key) # note.py:       C2SP signed note
    verify_receipt(receipt, public_key, result=result)        # receipt.py:    all of it, offline

Pure: only `keys.py` and `durablefile.py` touch the disk to write, `environment.py` and `receipt.py` to read.
"""
