"""The program ``mochi-server``: how it starts, its commands, the limits of its connections."""
