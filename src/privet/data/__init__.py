"""Input tables: reading, parsing, encoding and partitioning; named data sets."""
