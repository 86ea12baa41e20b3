"""The sandboxed worker: one process, one document at a time, no rights.

Imports PDFium, Pillow and numpy and nothing of gRPC. The service starts it by exec, before it has seen any document:

    python -I -m affidavit.services.preprocess.worker CHANNEL_FD AREA_FD PARENT_PID LIMITS_JSON
"""
