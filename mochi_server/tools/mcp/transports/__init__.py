"""How MCP servers are reached: their processes and addresses, within limits."""
