"""The routes of turns and models."""
