"""Catalogues of messages, and how a message is found in them."""
