"""Simulations: all members of a program on one machine."""
