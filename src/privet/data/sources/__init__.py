"""Data sources: files in several formats, folders of files, object stores, PostgreSQL."""
