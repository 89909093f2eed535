"""Provide what systems do in different ways: files and processes. No other room asks what the system can do."""
