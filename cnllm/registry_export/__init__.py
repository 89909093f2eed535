"""Write the registry for other programs: one JSON document, a package for npm, the forms of two public lists."""
