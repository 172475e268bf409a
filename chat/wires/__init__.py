"""Encoders of a turn's events, one module for each protocol."""
