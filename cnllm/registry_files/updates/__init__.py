"""Keep the registry fresh: updates from public lists, and signed data releases. Both write data files."""
