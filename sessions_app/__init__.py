"""Sessions over HTTP and on the command line: the face of mochi_server.sessions."""
