"""Where models run: Ollama, the built-in model, and the seam for others."""
