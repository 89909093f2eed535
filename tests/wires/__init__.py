"""The wires: both sides of each, apart and over a real socket."""
