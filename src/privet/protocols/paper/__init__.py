"""The paper's suite: its components, one file each, as it describes them."""
