"""A witness and a monitor of evidence logs, meant for another machine than the log's, under another's hand."""
