"""The output of the commands: answers, tables, errors, and the terminal that they go to."""
