"""Sites of one vendor: who they are, and which variable means which of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from cnllm import Registry
from cnllm.registry_files.check import check

TWO = """
[providers.one]
title = 'One'
protocol = 'openai-chat'
base_url = 'https://one.example/v1'
keys = ['ONE_KEY', 'BOTH_KEY', 'NAMED_KEY']
site = { vendor = 'ab', region = 'global' }
[providers.two]
extends = 'one'
title = 'Two'
base_url = 'https://two.example/v1'
keys = ['BOTH_KEY', 'NAMED_KEY']
site = { vendor = 'ab', region = 'cn', keys = ['NAMED_KEY'] }
[providers.plan]
extends = 'two'
title = 'A plan'
base_url = 'https://two.example/plan/v1'
"""


def of(folder: Path, text: str) -> Registry:
    file = folder / "sites.toml"
    file.write_text(text)
    return Registry.load(file)


def test_a_variable_means_the_only_site_that_reads_it_or_the_one_that_names_it(tmp_path: Path) -> None:
    sites = of(tmp_path, TWO).sites("two")
    assert {name: site["keys"] for name, site in sites.items()} == {"one": ["ONE_KEY"], "two": ["NAMED_KEY"]}
    assert {name: site["region"] for name, site in sites.items()} == {"one": "global", "two": "cn"}


def test_a_plan_that_extends_a_site_is_none(tmp_path: Path) -> None:
    registry = of(tmp_path, TWO)
    assert registry.sites("plan") == {}
    assert registry.resolve("plan/x").flags.site is None


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "vendor = 'ab', region = 'cn'",
            "vendor = 'other', region = 'cn'",
            "site.vendor: no other provider has 'other'",
        ),
        ("keys = ['NAMED_KEY'] }", "keys = ['ELSE_KEY'] }", "site.keys: 'ELSE_KEY' is no variable of its `keys`"),
    ],
)
def test_a_site_without_another_or_with_a_foreign_variable_is_a_fault(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    file = tmp_path / "sites.toml"
    file.write_text(TWO.replace(old, new))
    assert any(message in problem.message for problem in check([str(file)]))


def test_sites_that_share_a_variable_are_described() -> None:
    """Providers that one variable fits are sites of one vendor, plans of it, or stand here with the reason."""
    registry = Registry.load()
    vendors = {name: registry.resolve(f"{name}/any").flags.site for name in registry.providers}
    described = {name for name, site in vendors.items() if site is not None}
    assert {"zai", "zhipuai", "moonshotai-cn", "alibaba-us", "siliconflow-cn", "stepfun-ai", "byteplus"} <= described
    readers: dict[str, set[str]] = {}
    for name in registry.providers:
        for key in registry.resolve(f"{name}/any").flags.keys or ():
            readers.setdefault(key, set()).add(name)
    alone = {
        # several services at one site, each with models of its own
        *("amazon-bedrock", "bedrock-mantle", "opencode", "opencode-go", "spark", "spark-x", "spark-x2", "spark-x25"),
        # a plan at one site
        *("sensenova", "sensenova-token-plan", "kwai-coding-plan", "volcengine-agent-plan", "xiaomi"),
    }
    shared = {name for names in readers.values() if len(names) > 1 for name in names}
    assert shared - described == alone & shared
    assert registry.sites("zai")["zhipuai"]["keys"] == ["ZHIPU_API_KEY", "ZHIPUAI_API_KEY"]
