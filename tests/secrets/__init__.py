"""Secrets and reach."""
