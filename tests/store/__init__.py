"""The store: what is on disk after whatever happened."""
