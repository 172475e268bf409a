"""What turns need beside models and sessions: window, history, requests, prompts, summaries."""
