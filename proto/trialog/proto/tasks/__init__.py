"""Tasks in the Harbor format: what they say, what they ask for, what they are by content. Pure."""
