"""Gates: protocol steps, each with a dealer's half, a participant's half and a cost."""
