"""Real federations, a process for each role: meeting, agreeing, training, predicting."""
