"""Decode the bytes of a response into events and a reply."""
