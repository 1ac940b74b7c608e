"""The dashboard of one organisation, which reads the organisation's local files."""
