"""Agents: specialists with tools of their own. None are discovered yet."""
