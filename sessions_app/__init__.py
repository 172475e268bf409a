"""Sessions over HTTP: the face of mochi_server.sessions."""
