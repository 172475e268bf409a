"""What the tests share: servers that behave like the real ones, and clients that look closely."""
