"""Replaces the oldest messages of a long history by a summary, in requests only."""
