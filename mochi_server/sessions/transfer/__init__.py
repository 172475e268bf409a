"""Export, import, migrate and prune sessions."""
