"""Files: jobs, participants' own files, models, parts of models and checkpoints."""
