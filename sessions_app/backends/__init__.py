"""Session storages that need Django."""
