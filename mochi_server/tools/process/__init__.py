"""Child processes in which tools run."""
