"""OpenAI's chat completions, the protocol that many servers speak."""
