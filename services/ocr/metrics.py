"""What the OCR service counts of its own; batches and queues are counted by libs/batching, calls by libs/rpc."""

from prometheus_client import Counter

pages = Counter("affidavit_ocr_pages_total", "Pages answered: OK, UNCERTAIN or the reason of a failure", ["code"])
lines = Counter("affidavit_ocr_lines_total", "Lines of text found on pages")
