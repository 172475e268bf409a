"""OpenAI's Responses and Conversations (docs/reference/openai-responses.md)."""
