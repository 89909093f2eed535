"""Nothing of the machine these tests run on may reach them; endpoints are made from a few lines of TOML."""

from collections.abc import Callable
from functools import cache

import pytest

import cnllm

from .support import overlay_text

Home = Callable[..., cnllm.Model]


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """`home("tools.strict = true")`: the model home/m of a provider with these flags; `id` names another model."""
    folder = tmp_path_factory.mktemp("overlays")

    @cache
    def make(flags: str = "", *, more: str = "", id: str = "m") -> cnllm.Model:
        path = folder / f"o{len(list(folder.iterdir()))}.toml"
        path.write_text(overlay_text(flags, more), encoding="utf-8")
        return cnllm.Registry.load(str(path)).resolve(f"home/{id}")

    return make


@pytest.fixture(scope="session")
def plain(home: Home) -> cnllm.Model:
    """An endpoint with no flags of its own."""
    return home()
