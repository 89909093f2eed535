"""Each wire, both sides of it."""
