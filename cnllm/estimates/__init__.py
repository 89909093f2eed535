"""Estimate a request before it is sent: its tokens, the most that it can cost, and amounts of money as whole numbers."""
