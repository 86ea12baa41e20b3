"""Page images between services of one host: pixels in shared memory, leased by the writer, checked by the reader.

The writer owns the files: it unlinks one when its lease is released, when the call ends, and at its next start whatever
a dead writer left. A reader maps the file, checks length and SHA-256, and keeps its mapping even when the name is
already gone, so a reader that dies leaks nothing and a reader that lives never sees other bytes.

The data is raw pixels, rows without padding; width, height and format stand in the PageImage. (An Arrow IPC envelope
would add a parser and a 100 MB dependency to each end and no information.)
"""

from affidavit.libs.pageimages.leases import Lease, LeaseFolder
from affidavit.libs.pageimages.reader import CHANNELS, pixels

__all__ = ["CHANNELS", "Lease", "LeaseFolder", "pixels"]
