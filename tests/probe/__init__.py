"""What a probe learns, over real sockets."""
