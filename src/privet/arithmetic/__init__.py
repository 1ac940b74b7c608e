"""Numbers: the rings that shares live in, fixed point, randomness, and shares themselves."""
