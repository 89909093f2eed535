"""The engine against recorded traffic of real endpoints, through the public API alone."""
