"""What an agent saw and did: written down while it tries, kept in the field's format (ATIF)."""
