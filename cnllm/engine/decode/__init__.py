"""Bytes → events and a reply."""
