"""What an operator sees of a server: metrics and traces, each an observer of runs and an extra."""
