"""Sessions between the members of a job, and their agreement."""
