"""The built-in model: its provider, its weights, and the child process that runs them."""
