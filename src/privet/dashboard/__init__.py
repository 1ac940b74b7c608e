"""The page of one organisation: what its own files say of its federations."""
