"""Read the sources of `providers.toml` again, and compare what they say with our values.

    python -m maintenance.sources --cache build/sources

Nothing of a package is installed, run or written to disk: its files are read inside the archive. What a source looks
like inside stands in `catalogues.toml`.
"""
