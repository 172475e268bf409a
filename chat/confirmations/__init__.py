"""Confirmations that any process of a server can decide: a cache, and a signal."""
