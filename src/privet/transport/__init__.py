"""Bytes between participants: frames, and the channels that carry them."""
