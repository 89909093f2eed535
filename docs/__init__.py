"""The manual: pages in Markdown, and the program that writes its reference."""
