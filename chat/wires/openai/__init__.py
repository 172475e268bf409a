"""OpenAI's wire: chat completions and models (docs/reference/openai.md)."""
