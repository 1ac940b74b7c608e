"""Gates on masked values: shared values that are opened once, under a mask."""
