"""Sphinx's settings for the manual: `sphinx-build -W --keep-going -n docs build/docs`. Nothing is fetched.

The pages of `zh` are a build of their own, in the folder `zh` of the first one, with the tag `zh`: sidebar, search and
`lang` are Chinese there.
"""

from __future__ import annotations

import os
import posixpath
import re
import subprocess
import sys
from gettext import NullTranslations
from pathlib import Path
from typing import Any

from sphinx.search.zh import SearchChinese

import cnllm

project = "cnllm"
author = "the cnllm authors"
copyright = author
version = release = cnllm.__version__

extensions = ["myst_parser"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["generate", "templates", "zh", "**/__pycache__"]
suppress_warnings: list[str] = []  # -W means what it says

myst_heading_anchors = 3
myst_links_external_new_tab = False

tags: Any  # from Sphinx: the options -t
IS_CHINESE = tags.has("zh")  # noqa: F821
language = "zh_CN" if IS_CHINESE else "en"
smartquotes = False  # two hyphens begin an option
html_theme = "furo"
html_title = f"cnllm {release} 中文手册" if IS_CHINESE else f"cnllm {release}"
templates_path = ["templates"]
_SIDEBAR = ("brand", "search", "scroll-start", "navigation", "scroll-end", "variant-selector")
html_sidebars = {"**": [f"sidebar/{name}.html" for name in _SIDEBAR]}
html_sidebars["**"].insert(1, "language.html")
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


_LINK = re.compile(r"\[((?:[^\[\]`]|`[^`]*`)*)\]\((\.\./[^)\s]*?)\.md(#[^)\s]*)?\)")
_HAN = re.compile(r"[\u4e00-\u9fff]+")


def setup(app: Any) -> None:
    """Add the Chinese manual, the model matrix, and a page of the registry for each provider and model."""
    if IS_CHINESE:
        app.connect("builder-inited", lambda app: app.translator.add_fallback(ThemeWords()))
        app.connect("source-read", link_english_pages)
        app.add_search_language(SearchText)
    else:
        app.connect("build-finished", write_registry)
        app.connect("build-finished", build_chinese)


class ThemeWords(NullTranslations):
    """The words of the theme that Sphinx's own catalogue does not have."""

    def gettext(self, message: str) -> str:
        """Return a text in Chinese; a text that is not among these stays English."""
        words = {"On this page": "本页内容", "Back to top": "回到顶部", "View this page": "查看本页源码"}
        return words.get(message, message)


class SearchText(SearchChinese):
    """A search of Chinese text without a dictionary: each two characters are a term, and so is what punctuation ends.

    The page looks up a word of two characters, and finds a longer one within the longer terms.
    """

    def split(self, input: str) -> list[str]:
        """Return the terms of a text."""
        runs: list[str] = _HAN.findall(input)
        return [*super().split(input), *runs, *(run[at : at + 2] for run in runs for at in range(len(run) - 1))]


def link_english_pages(app: Any, docname: str, content: list[str]) -> None:
    """Make addresses of links that lead out of the Chinese manual: its build does not have the English pages."""

    def address(match: re.Match[str]) -> str:
        text, path, anchor = match[1], match[2], match[3] or ""
        is_outside = posixpath.normpath(posixpath.join(posixpath.dirname(docname), path)).startswith("..")
        return f'<a href="{path}.html{anchor}">{text}</a>' if is_outside else match[0]

    content[0] = _LINK.sub(address, content[0])


def build_chinese(app: Any, error: Exception | None) -> None:
    """Build the pages of `zh` as a manual of their own. Raises `CalledProcessError` for a warning in it."""
    if error is not None or app.builder.format != "html":
        return
    folder = Path(app.outdir, "zh")
    options = ["-W", "--keep-going", "-n", "-q", "-t", "zh", "-c", app.confdir, "-d", Path(app.doctreedir, "zh")]
    command = [sys.executable, "-m", "sphinx", *map(os.fspath, options), os.fspath(Path(app.srcdir, "zh")), str(folder)]
    subprocess.run(command, check=True)


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
