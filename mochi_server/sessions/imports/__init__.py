"""Import conversations of other programs, and sessions that were exported."""
