"""The face of mochi_server.tools; tools have no routes yet."""
