"""Starting, finding and stopping a stack of services on this machine.

`plan` says what runs and where, `supervisor` keeps it running, `stackfile` tells others about it, `session` gives a
command a stack to talk to: the one that runs, or a private one for its own life.
"""
