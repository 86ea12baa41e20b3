"""The version of what this service does to a document.

It is raised when the same bytes would give other pixels: another PDFium or Pillow, another resolution policy. Bundles
pin it, and every page's evidence names it.
"""

from importlib.metadata import version

PREPROCESS_VERSION = "1"
SOFTWARE = f"affidavit-preprocess {version('affidavit')}"
