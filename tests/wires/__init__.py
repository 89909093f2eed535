"""The wires beside chat completions: each read, written, served, and over a real socket."""
