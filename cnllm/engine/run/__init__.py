"""Run a call and a tool loop as generators of effects that a client performs."""
