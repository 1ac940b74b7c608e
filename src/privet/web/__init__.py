"""The recipient's endpoint: predictions over HTTP, from a federation that serves."""
