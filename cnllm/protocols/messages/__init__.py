"""Anthropic Messages. `client` calls an endpoint, `server` answers a client; they share no code."""
