"""Functions that models may call. No source of tools exists yet."""
