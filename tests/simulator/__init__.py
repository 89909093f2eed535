"""The simulator: what it refuses, what it says, and that it says it over real sockets."""
