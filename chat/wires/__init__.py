"""Encoders of the engine's events, one module for each protocol."""
