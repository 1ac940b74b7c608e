"""The prediction service, which answers requests until the recipient ends it."""
