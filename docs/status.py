"""How finished cnllm is: README's second paragraph, and how pages install it before and after its release."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path

from cnllm.config.distribution import NAME, RELEASED

__all__ = ["PAGES", "after_release", "current", "without_status"]

_ROOT = Path(__file__).parents[1]
PAGES = tuple(
    _ROOT / name
    for name in (
        *("README.md", "README.zh-CN.md", "docs/index.md", "docs/zh/index.md", "docs/reference/command-line.md"),
        *(f"docs/{zh}tutorial/{page}.md" for zh in ("", "zh/") for page in ("getting-started", "coding-agent")),
    )
)
"""The pages that say how to install cnllm."""

_STATUS = re.compile(r"(?<=<!-- status -->\n).*?(?=<!-- /status -->)", re.DOTALL)
_AFTER_RELEASE = (
    (r"pip install '\.\[", f"pip install '{NAME}["),
    (r"pip install \.(?![\w\[])", f"pip install {NAME}"),
    (r"From a checkout, without", "Without"),
    (r"\. From a checkout:", ":"),
    (r", in\s(?:the folder of the|a)\scheckout", ""),
    (r"在源码目录里(?:(执行)|\s)", r"\1"),
)
_ENGLISH = """\
**{state}.** The registry has more than {facts:,} facts. Most were taken from published sources, and few are
confirmed by real calls: {catalogue} % stand in public lists, {docs} % in vendors' documentation, {code} % in
program code, {issue} % in reports of users, {inferred} % are inferred, and {calls} % come from recorded or probed
calls. There is no telemetry. Conversations of the command line stay on this machine (`cnllm logs path` says where,
`cnllm logs off` keeps none).
[Missing parts](ROADMAP.md) · [Stability](docs/develop/stability.md)
"""
_CHINESE = """\
**{state}。** 注册表里有 {facts:,} 多条事实，大多取自公开资料，少数经过真实调用验证：{catalogue}% 出自公开的模型列表，
{docs}% 出自厂商文档，{code}% 出自程序代码，{issue}% 出自用户反馈，{inferred}% 由推断得出，
{calls}% 有实际调用的记录或探测为证。cnllm 不收集任何使用数据。命令行的对话只保存在本机（`cnllm logs path` 显示位置，
`cnllm logs off` 关闭记录）。[还缺什么](docs/zh/develop/roadmap.md) · [哪些部分是稳定的](docs/zh/develop/stability.md)
"""
_KINDS = ("recorded", "probe", "docs", "code", "issue", "catalogue", "inferred")  # of equally precise sources the first


def current(page: Path, *, released: bool = RELEASED) -> str:
    """Return the text of a page as it should be, before or after the release."""
    paragraph = _paragraph(is_chinese="zh" in page.name, released=released)
    text = _STATUS.sub(lambda _: paragraph, page.read_text(encoding="utf-8"))
    return after_release(text) if released else text


def after_release(text: str) -> str:
    """Return a text that installs cnllm from PyPI where it did from a checkout."""
    for pattern, words in _AFTER_RELEASE:
        text = re.sub(pattern, words, text)
    return text


def without_status(text: str) -> str:
    """Return a text without what this module writes, for a comparison."""
    return after_release(_STATUS.sub("", text))


def _paragraph(*, is_chinese: bool, released: bool) -> str:
    facts, share = _figures()
    if is_chinese:
        text, state = _CHINESE, "早期版本（alpha）" + ("" if released else "，尚未发布到 PyPI")
    else:
        text, state = _ENGLISH, "Alpha" if released else "Alpha, and not on PyPI yet"
    return text.format(state=state, facts=facts, calls=share["recorded"] + share["probe"], **share)


@cache
def _figures() -> tuple[int, Counter[str]]:
    """Return how many facts endpoints have, in thousands, and per cent of them by the kind of their best source."""
    from cnllm.registry.documents import layer_tables
    from cnllm.registry.merge import META, flatten
    from cnllm.registry.provenance import cited_flags, precision_of
    from cnllm.registry.read import builtin_path, read

    kinds: Counter[str] = Counter()
    data = read(builtin_path(), builtin=True).data
    for path, table in layer_tables(data):
        if path[0] in ("defaults", "protocols"):
            continue  # the wire itself, not the behaviour of an endpoint
        cited = [source for _, _, source in cited_flags(data, path, table)]
        for keys, _ in flatten({key: value for key, value in table.items() if key not in META or key == "when"}):
            by_kind = dict.fromkeys(_KINDS, 0)
            for source in cited:
                precision = precision_of(".".join(keys), source["backs"])
                by_kind[source["how"]] = max(by_kind[source["how"]], precision)
            kinds[max(_KINDS, key=by_kind.__getitem__)] += any(by_kind.values())
    total = kinds.total()
    share = Counter({kind: 100 * count // total for kind, count in kinds.items()})
    rest = sorted(kinds, key=lambda kind: 100 * kinds[kind] % total, reverse=True)
    share.update(rest[: 100 - share.total()])  # so that the sum is 100
    return total // 1000 * 1000, share
