"""Talking to a stack from the command: one document in, its pages, exact result bytes and receipt out."""
