"""The MCP servers that a user has configured."""
