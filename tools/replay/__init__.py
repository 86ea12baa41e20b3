"""An old answer, worked out once more: `record` reads what the log says of it, `again` answers anew on services that
nothing else uses, `compare` says what differs."""
