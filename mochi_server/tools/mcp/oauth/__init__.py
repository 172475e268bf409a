"""OAuth of MCP servers over HTTP: a person authorizes once, in a browser."""
