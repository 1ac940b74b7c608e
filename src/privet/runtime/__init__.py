"""Participants and the dealer at work: the only place that opens or reveals."""
