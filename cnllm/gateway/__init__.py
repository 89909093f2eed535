"""Serve any model of the registry to clients of any protocol."""
