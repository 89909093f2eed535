"""Fit a conversation to an endpoint."""
