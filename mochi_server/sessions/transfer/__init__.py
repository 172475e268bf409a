"""Sessions into files for others and back, and old ones out of the way."""
