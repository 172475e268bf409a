"""The tool calls of one reply: planned, decided, run, recorded."""
