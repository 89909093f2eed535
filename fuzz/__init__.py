"""Hostile input for everything that reads what others wrote: properties that must hold for any bytes at all.

`fuzz.targets` has the properties, one function per target: `check(data)` returns, or raises `AssertionError` (or
whatever the package should not have let out). The default tests replay earlier findings and a few hundred generated
inputs through them; `python -m fuzz TARGET --seconds N` searches on, guided by coverage, and needs atheris.
"""
