"""Encode messages and options as a request."""
