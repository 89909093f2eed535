"""A conversation → one that an endpoint takes."""
