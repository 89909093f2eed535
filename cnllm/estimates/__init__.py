"""Estimate a request before it is sent: its tokens, the most that it can cost, amounts of money as whole numbers."""
