"""The precision of the `masked` protocol: units, rings, scales and bounds."""
