"""The list of sessions, in order, filtered, in pages, and search in them."""
