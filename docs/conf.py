"""Sphinx's settings for the manual: `sphinx-build -W --keep-going -n docs build/docs`. Nothing is fetched."""

from __future__ import annotations

import cnllm

project = "cnllm"
author = "the cnllm authors"
copyright = author
version = release = cnllm.__version__

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["generate", "**/__pycache__"]
suppress_warnings: list[str] = []  # -W means what it says

myst_heading_anchors = 3
myst_links_external_new_tab = False

language = "en"
smartquotes = False  # two hyphens begin an option
html_theme = "furo"
html_title = f"cnllm {release}"
html_static_path = ["static"]
html_css_files = ["tables.css"]
html_copy_source = False
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}
highlight_language = "none"
