"""Files that people write: job.toml, party.toml and the specifications of input tables."""
