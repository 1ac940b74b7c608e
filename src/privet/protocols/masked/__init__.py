"""The masked suite: one opening a gate, one large opening a level, and less leakage."""
