"""Turns over HTTP: the face of mochi_server.chat."""
