"""The server as an MCP server: its tools, agents, prompts, sessions and turns for MCP clients."""
