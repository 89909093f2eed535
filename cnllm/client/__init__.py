"""The clients: they drive the engine's steps over a transport. Import the module that is meant."""
