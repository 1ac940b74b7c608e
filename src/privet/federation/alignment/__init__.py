"""Sample alignment, and the comparison of ids before a session."""
