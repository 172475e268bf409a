"""How summaries of conversations are scheduled, and how their texts come about."""
