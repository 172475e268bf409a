"""Runs: turns that go on without a connection, are journalled, and can be joined from anywhere."""
