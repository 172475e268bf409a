"""A folder for each session, which a model can work in, and the MCP server that offers it."""
