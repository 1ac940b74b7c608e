"""The protocols of secure training and inference on shares: `masked` and `paper`."""
