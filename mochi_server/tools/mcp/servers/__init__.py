"""The MCP servers of the configuration as they run: connections, states, and what they offer."""
