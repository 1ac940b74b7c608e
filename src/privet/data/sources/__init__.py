"""Where tables come from: files in several formats, folders of them, stores, a database."""
