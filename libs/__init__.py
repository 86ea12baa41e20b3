"""What two or more services share, one purpose a folder. A lib imports no service."""
