"""Keep the catalogues of the command line's messages; see `__main__`."""
