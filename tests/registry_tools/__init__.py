"""What reads the registry without asking anyone: capabilities, differences, sources, public files, added models."""
