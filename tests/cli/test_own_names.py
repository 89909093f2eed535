"""`cnllm aliases` and `cnllm prefer`: short names in the user's own file."""

from __future__ import annotations

import re

from cnllm import Registry

from .support import Machine

MINE = '# mine\n[aliases]\n# quick\nfast = "deepseek/deepseek-flash" # cheap\n'


def url(machine: Machine, name: str) -> str:
    return str(machine.run("call", "-m", name, "--plan", "hi").json()["url"])


def test_an_alias_is_set_used_and_removed(machine: Machine) -> None:
    file = machine.config / "providers.toml"
    done = machine.run("aliases", "set", "best", "GLM-4.7")
    assert (done.status, done.out) == (0, "")
    assert str(file) in done.err
    assert machine.run("aliases", "list", "--json").json() == [
        {"alias": "best", "model": "zai/glm-4.7", "file": str(file)}
    ]
    assert "api.z.ai" in url(machine, "best")
    done = machine.run("aliases", "set", "deepseek-flash", "glm-4.7")  # wins over a built-in one
    assert done.status == 0
    assert "zai/glm-4.7 instead of deepseek/deepseek-" in done.err
    assert "api.z.ai" in url(machine, "deepseek-flash")
    assert "stands for deepseek/" in machine.run("aliases", "remove", "deepseek-flash").err
    assert "api.deepseek.com" in url(machine, "deepseek-flash")
    assert machine.run("aliases", "remove", "BEST").status == 0
    assert machine.run("aliases", "list", "--json").json() == []


def test_setting_an_alias_keeps_the_comments_of_the_file(machine: Machine) -> None:
    machine.config.mkdir(parents=True)
    file = machine.config / "providers.toml"
    file.write_text(MINE)
    machine.run("aliases", "set", "FAST", "glm-4.7")
    assert file.read_text() == MINE.replace("deepseek/deepseek-flash", "zai/glm-4.7")


def test_what_is_wrong_is_said_and_nothing_written(machine: Machine) -> None:
    for args, words in (
        (("set", "a/b", "glm-4.7"), ["one word without a slash"]),
        (("set", "", "glm-4.7"), ["one word"]),
        (("set", "x", "glm-4.77"), ["glm-4.77", "did you mean"]),
        (("set", "x", "zai/no-such"), ["zai/no-such", "cnllm models add"]),
        (("remove", "glm-4.7"), ["comes with cnllm", "cnllm aliases set glm-4.7"]),
        (("remove", "nothing"), ["no alias of yours is called nothing", "cnllm aliases list"]),
    ):
        machine.run("aliases", *args).fails(2, *words)
    assert not (machine.config / "providers.toml").exists()
    machine.run("aliases", "set", "fast", "glm-4.7")
    machine.run("aliases", "remove", "fats").fails(2, "did you mean fast?")


def test_preferred_providers_decide_what_a_bare_name_means(machine: Machine) -> None:
    assert "no provider is preferred" in machine.run("prefer").err
    assert "api.z.ai" in url(machine, "glm-4.7")
    done = machine.run("prefer", "ZhipuAI")
    assert (done.status, done.out) == (0, "")
    assert "glm-4.7 means zhipuai/glm-4.7 now" in done.err or "more: cnllm models list" in done.err
    assert "bigmodel.cn" in url(machine, "glm-4.7")
    assert machine.run("prefer", "moonshotai-cn", "--json").json() == ["moonshotai-cn", "zhipuai"]
    assert machine.run("prefer").out == "moonshotai-cn\nzhipuai\n"
    assert "preferred already" in machine.run("prefer", "moonshotai-cn").err
    done = machine.run("prefer", "--remove", "zhipuai", "moonshotai-cn")
    registry = Registry.load()
    shown = re.findall(r"means (\S+) now", done.err)
    first = next(n for n, name in enumerate(shown) if name not in registry.default_models)
    assert first > 0, "default models come first"
    assert "retired" not in [getattr(registry.resolve(name).flags.status, "is_", None) for name in shown]
    assert "api.z.ai" in url(machine, "glm-4.7")
    machine.run("prefer", "zhipu").fails(2, "no provider is called zhipu", "did you mean zhipuai")
    machine.run("prefer", "--remove", "zai").fails(2, "zai is not preferred")
    machine.run("prefer", "--remove").fails(2, "needs a provider")


def test_a_trusted_file_is_named_when_it_changes(machine: Machine) -> None:
    file = machine.file("team.toml", MINE)
    machine.env["CNLLM_PROVIDERS"] = file
    machine.run("registry", "trust", file)
    assert f"cnllm registry trust {file}" in machine.run("aliases", "set", "x", "glm-4.7").err
    assert "registry trust" not in machine.run("aliases", "set", "y", "glm-4.7").err  # no longer trusted
