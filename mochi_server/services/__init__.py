"""What turns need beside models and sessions: window, history, prompts."""
