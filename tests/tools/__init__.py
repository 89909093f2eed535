"""Tools: from functions and definitions, arguments checked and built, and described in a prompt."""
