"""Services of a turn: context window, history, requests to models, system prompts, summaries."""
