"""Tests named after the rows of the catalogue of what users of other clients suffer."""
