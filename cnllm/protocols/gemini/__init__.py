"""Gemini generateContent. `client` asks an endpoint, `server` answers a client; they share no code."""
