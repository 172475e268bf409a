"""Rules about tool calls: whether they are allowed, denied, or a person is asked."""
