"""Training and prediction, table by table: buckets, models, secure programs, the reference."""
