"""The `masked` protocol: one opening a gate, one large opening a level."""
