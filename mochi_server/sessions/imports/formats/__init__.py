"""A reader for each program whose exports can be imported."""
