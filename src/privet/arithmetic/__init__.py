"""Arithmetic: rings, fixed point, pseudorandom generators, secret shares and ring-LWE."""
