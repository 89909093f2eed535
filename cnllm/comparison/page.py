"""Write a report as one HTML page: hosts side by side, and every failed task one click away.

What endpoints and files say reaches the page as escaped text only. The page loads nothing.
"""

from __future__ import annotations

import html
from collections.abc import Iterator
from pathlib import Path

from cnllm.comparison.figures import (
    FIGURES,
    ComparisonData,
    FigureRow,
    Median,
    Share,
    Words,
    figure_rows,
    verdict_lines,
)
from cnllm.comparison.run import TaskExchange
from cnllm.types.checks import plural

__all__ = ["render_drawing", "render_page"]

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'"
_LONGEST = 4000
"""The characters of a prompt or a response that the page shows."""


def render_page(report: ComparisonData) -> str:
    """Return the page of a report."""
    title = f"{report.model}: {len(report.hosts)} host{plural(len(report.hosts))}"
    body = "\n".join(_body(report))
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{html.escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width,initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(_POLICY)}">\n'
        f"<style>\n{_read('style.css')}</style>\n<body>\n{body}\n<script>\n{_read('page.js')}</script>\n</html>\n"
    )


def _read(name: str) -> str:
    """Return a file of this folder."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _both(english: str, chinese: str) -> str:
    """Return a text in both languages, of which the page shows one."""
    return f'<span lang="en">{html.escape(english)}</span><span lang="zh-CN">{html.escape(chinese)}</span>'


def _body(report: ComparisonData) -> Iterator[str]:
    weights = report.weights or report.model
    yield f"<button>{_both('中文', 'English')}</button>"
    yield f"<h1>{_both(f'How faithfully hosts serve {weights}', f'各托管方提供的 {weights} 有多忠实')}</h1>"
    settings = report.settings
    english = f"{settings.turns} tool turn{plural(settings.turns)}, seed {settings.seed}; {report.started}; "
    english += f"registry {report.registry}"
    chinese = f"{settings.turns} 轮工具调用，种子 {settings.seed}；{report.started}；注册表 {report.registry}"
    yield f'<p class="dim">{_both(english, chinese)}</p>'
    if report.simulated:
        yield f'<p class="bad">{_both("Simulated: no host was asked.", "模拟结果：没有向任何托管方发出请求。")}</p>'
    yield from _verdicts(report)
    yield f"<h2>{_both('Figures', '数据')}</h2>"
    yield '<div class="scroll"><table><thead><tr><th></th>'
    yield "".join(f"<th>{html.escape(figures.host)}</th>" for figures in report.figures) + "</tr></thead><tbody>"
    yield from _rows(report)
    yield "</tbody></table></div>"
    note = "The bar is the interval in which the share lies with 95 %. Replies are judged as they arrived."
    note_zh = "横条是比例的 95% 区间。回复按收到的原样评判，不经 cnllm 修复。"
    yield f'<p class="dim">{_both(note, note_zh)}</p>'
    yield from _problems(report)


def _verdicts(report: ComparisonData) -> Iterator[str]:
    yield f"<h2>{_both('Verdicts', '结论')}</h2>"
    for words, is_worse in verdict_lines(report):
        yield f'<p class="{"bad" if is_worse else ""}">{_both(*words)}</p>'
    for host in report.hosts:
        if host.stopped is not None:
            stop = _both(f"{host.name} was left before the end", f"{host.name} 没有测完")
            yield f"<p>{stop}: {html.escape(host.stopped)}</p>"
    reference = report.hosts[0].name
    note = f"{reference} is the reference. Only tasks count that both hosts were asked alike. p is corrected for all "
    note += "tests: of a hundred comparisons of equal hosts, at most one names a fault by chance."
    note_zh = (
        f"{reference} 是参照。只计两家问法相同的任务。p 已按全部检验校正：两家一样好时，一百次比较里最多约有一次误判。"
    )
    yield f'<p class="dim">{_both(note, note_zh)}</p>'


def _rows(report: ComparisonData) -> Iterator[str]:
    worse = {(v.host, FIGURES.get(v.figure)) for v in report.verdicts if v.verdict == "worse"}
    for row in figure_rows(report):
        faults = [(figures.host, row.about) in worse for figures in report.figures]
        cells = [_cell(value, row, is_worse=bad) for value, bad in zip(row.values, faults, strict=True)]
        yield _row(row.about, cells)
    changes = [", ".join(f"{note} {number}" for note, number in c.changed.items()) for c in report.figures]
    yield _row(("changed in requests", "请求里的改动"), [html.escape(text or "–") for text in changes])


def _row(about: Words, cells: list[str]) -> str:
    return f"<tr><th>{_both(*about)}</th>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"


def _cell(value: Share | Median | Words | str | None, row: FigureRow, *, is_worse: bool) -> str:
    """Return a value as HTML, a measured one with its interval; red only where the host is worse than the reference."""
    if isinstance(value, Share):
        return _share(value, is_worse=is_worse)
    if isinstance(value, Median):
        middle, low, high = (f"{number:.{row.digits}f}" for number in (value.value, value.low, value.high))
        return f'{middle}{row.unit} <span class="dim">({low}–{high})</span>'
    return _both(*value) if isinstance(value, tuple) else html.escape(value or "–")


def _share(share: Share, *, is_worse: bool) -> str:
    """Return a share with a bar of its interval."""
    if share.low is None or share.high is None:
        return "–"
    kind = "bad" if is_worse else "good" if share.good == share.tasks else ""
    left, width, point = 100 * share.low, 100 * (share.high - share.low), 100 * share.good / share.tasks
    return (
        f'<span class="{kind}">{share.good}</span> / {share.tasks}'
        f'<svg width="100" height="6" role="img"><rect width="100" height="6" fill="currentColor" opacity=".12"/>'
        f'<rect x="{left:.1f}" width="{width:.1f}" height="6" fill="currentColor" opacity=".35"/>'
        f'<rect x="{min(98.0, point):.1f}" width="2" height="6" fill="currentColor"/></svg>'
    )


def _problems(report: ComparisonData) -> Iterator[str]:
    """Yield the tasks that did not end right, each with its prompt and what came."""
    prompts = {task.name: task.prompt for task in report.settings.tasks}
    yield f"<h2>{_both('Tasks that did not end right', '没有正确完成的任务')}</h2>"
    for host in report.hosts:
        problems = report.problems[host.name]
        yield f"<p><strong>{html.escape(host.name)}</strong>: {len(problems)}</p>"
        last = {exchange.task: exchange for exchange in host.exchanges}
        for task, problem in problems.items():
            yield f"<details><summary>{html.escape(task)}: {html.escape(problem)}</summary>"
            yield f"<pre>{html.escape(_shorten(prompts.get(task, '')))}</pre>"
            yield f"<pre>{html.escape(_shorten(_response(last[task])))}</pre></details>"


def _response(exchange: TaskExchange) -> str:
    """Return what came in response, as text."""
    if exchange.recorded.get("response") is None:
        return str(exchange.recorded.get("error", ""))
    return b"".join(exchange.cassette.chunks).decode(errors="replace")


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]}\n…\n{text[-_LONGEST // 2 :]}"


# ── the drawing ──────────────────────────────────────────────────────────────
_DRAWN = {
    "kept": "calls that came",
    "valid": "valid arguments",
    "structured": "right to a schema",
    "exact": "exact lists",
}
"""The figures of the drawing, with their heads."""
_ROW = 38


def render_drawing(report: ComparisonData) -> str:
    """Return the main shares of each host as an SVG drawing, with the number of figures in which it is worse."""
    height = 78 + _ROW * len(report.figures)
    title = f"How faithfully hosts serve {report.weights or report.model}"
    settings = report.settings
    about = f"{settings.turns} tool turn{plural(settings.turns)}, seed {settings.seed}, {report.started[:10]}"
    about += ", simulated" if report.simulated else ""
    style = "".join(_read("drawing.css").splitlines())
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="700" height="{height}" viewBox="0 0 700 {height}" role="img">',
        f"<title>{html.escape(title)}</title><style>{style}</style>",
        f'<text x="0" y="18" style="font-size:17px;font-weight:600">{html.escape(title)}</text>',
        f'<text class="dim" x="0" y="38">{html.escape(about)}; the bar is the interval of 95 %</text>',
    ]
    lines += [_label(210 + 125 * place, 64, head, "dim") for place, head in enumerate(_DRAWN.values())]
    for number, figures in enumerate(report.figures):
        top = 78 + _ROW * number
        lines.append(f'<path class="line" d="M0 {top}H700"/>')
        worse = sum(verdict.host == figures.host and verdict.verdict == "worse" for verdict in report.verdicts)
        host = figures.host if len(figures.host) <= 29 else f"{figures.host[:28]}…"
        lines.append(_label(0, top + 16, host))
        verdict = f"worse in {worse} figure{plural(worse)}" if worse else "no difference is shown"
        lines.append(_label(0, top + 32, verdict if number else "the reference", "bad" if worse else "dim"))
        for place, figure in enumerate(_DRAWN):
            lines += _share_bar(figures.shares.get(figure), 210 + 125 * place, top)
    return "\n".join([*lines, "</svg>\n"])


def _label(x: int, y: int, text: str, kind: str = "") -> str:
    kind = f' class="{kind}"' if kind else ""
    return f'<text x="{x}" y="{y}"{kind}>{html.escape(text)}</text>'


def _share_bar(share: Share | None, x: int, top: int) -> Iterator[str]:
    """Yield a share with a bar of its interval."""
    if share is None or share.low is None or share.high is None:
        yield _label(x, top + 16, "–", "dim")
        return
    kind = "good" if share.good == share.tasks else "bad"
    yield _label(x, top + 16, f"{share.good} of {share.tasks}")
    left, right = x + 105 * share.low, x + 105 * share.high
    yield f'<rect class="{kind}" x="{x}" y="{top + 24}" width="105" height="6" opacity=".15"/>'
    yield f'<rect class="{kind}" x="{left:.1f}" y="{top + 24}" width="{right - left:.1f}" height="6" opacity=".45"/>'
    point = x + 103 * share.good / share.tasks
    yield f'<rect class="{kind}" x="{point:.1f}" y="{top + 22}" width="2" height="10"/>'
