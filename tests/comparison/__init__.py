"""Comparisons of hosts."""
