"""Messages, events and what is asked of a model, in the words that go over the wire."""
