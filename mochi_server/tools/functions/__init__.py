"""Python functions as tools: their signatures, arguments and results."""
