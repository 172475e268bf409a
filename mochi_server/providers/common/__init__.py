"""What the adapters of several services share; it knows none of them."""
