"""Folders of Python functions: importing them, describing them, noticing changes."""
