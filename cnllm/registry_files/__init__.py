"""Check, edit, format, compare and update registry files. Resolving a name needs none of it."""
