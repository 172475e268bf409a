"""Export sessions, for people and for other programs."""
