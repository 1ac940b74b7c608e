"""Tables from files and named data sets, and how an experiment cuts them up."""
