"""Trials of tools."""
