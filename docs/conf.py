"""Sphinx's settings for the manual: `sphinx-build -W --keep-going -n docs build/docs`. Nothing is fetched."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

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
html_css_files = ["tables.css", "look.css"]
html_js_files = ["access.js"]
html_copy_source = False
html_show_sphinx = False
_FONTS = (
    "Inter, ui-sans-serif, system-ui, -apple-system, 'Segoe UI', 'PingFang SC', 'Microsoft YaHei', 'Noto Sans CJK SC'"
)
_MONO = "ui-monospace, 'SF Mono', 'JetBrains Mono', Menlo, Consolas, 'Liberation Mono', monospace"
_TYPE = {"font-stack": f"{_FONTS}, sans-serif", "font-stack--monospace": _MONO}
html_theme_options = {
    "navigation_with_keys": True,
    # the colours of the model matrix
    "light_css_variables": _TYPE | dict.fromkeys(("color-brand-primary", "color-brand-content"), "#0b655f"),
    "dark_css_variables": _TYPE | dict.fromkeys(("color-brand-primary", "color-brand-content"), "#67cdc3"),
}
highlight_language = "none"


def setup(app: Any) -> None:
    """Add pages that are made from the built-in registry: the model matrix, and one for each provider and model."""
    app.connect("build-finished", write_registry)


def write_registry(app: Any, error: Exception | None) -> None:
    """Write matrix.html and the folder registry beside index.html, where the manual is built as HTML."""
    if error is not None or app.builder.format != "html":
        return
    from cnllm.cli.matrix.page import render_page
    from cnllm.registry import Registry
    from cnllm.registry.read import builtin_path, read

    sys.path.insert(0, str(Path(__file__).parents[1]))  # where only the package is installed
    from docs.site import write_site

    registry = Registry([read(builtin_path(), builtin=True)])
    page = render_page(registry, manual="index.html")
    Path(app.outdir, "matrix.html").write_text(page, encoding="utf-8")
    write_site(registry, Path(app.outdir, "registry"))
