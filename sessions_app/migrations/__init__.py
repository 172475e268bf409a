"""Migrations of the tables of sessions."""
