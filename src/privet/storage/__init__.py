"""Files that programs write: models, model parts, checkpoints, alignments, journals."""
