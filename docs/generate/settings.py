"""The settings: every variable of the environment that cnllm reads for itself."""

from __future__ import annotations

from cnllm.config.settings import SETTINGS
from docs.generate.markdown import cell, table

__all__ = ["page"]


def page() -> str:
    """Return a page with every setting: its values, its default and what it sets."""
    return "\n\n".join(
        [
            "# Settings",
            "Variables of the environment. An argument, or an option of the command line, wins over the variable. A "
            "variable without a value counts as not set. A wrong value is an error that names the variable and what to "
            "write; `cnllm serve` and `cnllm batch` check all of them before they start. A name that resembles one of "
            "these is pointed out in the log, or on stderr.",
            table(["variable", "value", "default", "meaning"], [_row(name) for name in SETTINGS]),
            "The default model and whether calls are logged can also stand in files, which `cnllm models default` and "
            "`cnllm logs on` write. Keys of endpoints are [on a page of their own](../how-to/keys.md).",
            "Other variables are not settings of cnllm, and mean what they mean to every program: `HTTPS_PROXY`, "
            "`HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`, `SSL_CERT_FILE`, `SSL_CERT_DIR` and `SSLKEYLOGFILE`, `NO_COLOR` "
            "and `TERM`, `LANGUAGE`, `LC_ALL`, `LC_MESSAGES` and `LANG`, `XDG_CONFIG_HOME`, `XDG_DATA_HOME` and "
            "`XDG_CACHE_HOME`, `PROMETHEUS_MULTIPROC_DIR`.",
        ]
    ) + "\n"  # fmt: skip


def _row(name: str) -> list[str]:
    setting = SETTINGS[name]
    default = "" if setting.default is None else f"`{setting.default}`"
    return [f"`CNLLM_{name.upper()}`", cell(setting.values), default, cell(setting.purpose)]
