"""The routes of turns, confirmations and models, with their bodies and answers."""
