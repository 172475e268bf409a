"""The face of mochi_server.agents; agents have no routes yet."""
