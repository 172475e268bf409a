"""OpenAI's wire: chat completions (docs/reference/openai.md)."""
