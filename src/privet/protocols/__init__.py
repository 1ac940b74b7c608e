"""The protocol suites: what a training and an inference do on shares."""
