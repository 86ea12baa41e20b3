"""A disk with faults under a real process: what a power cut, a short write, a full disk and a failed sync leave."""
