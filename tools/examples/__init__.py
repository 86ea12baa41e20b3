"""The repo's own sample scans, made by code."""
