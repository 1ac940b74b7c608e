"""HTTP endpoint of the recipient: predictions from a running service."""
