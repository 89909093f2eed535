"""Tool calls that a model wrote as text: found by markers, read by grammars, both declared in the registry."""
