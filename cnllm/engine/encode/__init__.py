"""Messages and options → a request."""
