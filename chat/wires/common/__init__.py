"""What the wires of vendors' APIs have in common."""
