"""preprocess: documents to page images, parsed in a sandbox.

upload (spool) ▶ document (one at a time in a worker process) ▶ window (pages drawn ahead, leased) ▶ answer

Parsers run in `worker/`, separate processes without rights; everything else here never looks inside a document.
"""
