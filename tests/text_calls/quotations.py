"""Blocks of every grammar, ways to quote one, and places where a real call stands."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterator

__all__ = ["CALLS", "GRAMMARS", "HELD", "QUOTED", "REAL", "RETOLD", "Write", "cases"]

Write = Callable[[str, dict[str, str]], str]
CALLS = [("rm", {"path": "/"}), ("search", {"q": "green tea", "lang": "zh"})]


def _json(name: str, given: dict[str, str]) -> str:
    return json.dumps({"name": name, "arguments": given}, ensure_ascii=False)


def _parameters(given: dict[str, str], form: str, gap: str = "") -> str:
    return "".join(gap + form.format(key=key, value=value) for key, value in given.items())


def _function(name: str, given: dict[str, str]) -> str:
    inner = _parameters(given, "<parameter={key}>{value}</parameter>", "\n")
    return f"<function={name}>{inner}\n</function>"


def _invoke(name: str, given: dict[str, str]) -> str:
    inner = _parameters(given, '<parameter name="{key}">{value}</parameter>', "\n")
    return f'<invoke name="{name}">{inner}</invoke>'


def _recipient(name: str, given: dict[str, str]) -> str:
    inner = _parameters(given, '<rfl:parameter name="{key}">{value}</rfl:parameter>', "\n")
    return f"to={name}<|channel|>analysis <|constrain|>xml<|message|>{inner}<|call|>"


def _pairs(name: str, given: dict[str, str]) -> str:
    return name + _parameters(given, "<arg_key>{key}</arg_key><arg_value>{value}</arg_value>", "\n")


def _barred(name: str, given: dict[str, str]) -> str:
    inner = _parameters(given, '<｜DSML｜parameter name="{key}" string="true">{value}</｜DSML｜parameter>', "\n")
    return f'<｜DSML｜tool_calls>\n<｜DSML｜invoke name="{name}">{inner}\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>'


def _tokens(name: str, given: dict[str, str]) -> str:
    return (
        f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>{name}\n```json\n{json.dumps(given)}\n```"
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
    )


def _sections(name: str, given: dict[str, str]) -> str:
    return (
        f"<|tool_calls_section_begin|><|tool_call_begin|>functions.{name}:0<|tool_call_argument_begin|>"
        f"{json.dumps(given)}<|tool_call_end|><|tool_calls_section_end|>"
    )


def _prefixed(name: str, given: dict[str, str]) -> str:
    mark = "]<]minimax[>["
    inner = _parameters(given, f"{mark}<{{key}}>{{value}}{mark}</{{key}}>")
    return f'{mark}<tool_call>{mark}<invoke name="{name}">{inner}{mark}</invoke>{mark}</tool_call>'


def _channels(name: str, given: dict[str, str]) -> str:
    form = '<|open|>argument key="{key}" type="string"<|sep|>{value}<|close|>argument<|sep|>'
    call = f'<|open|>call tool="{name}" index="1"<|sep|>{_parameters(given, form)}<|close|>call<|sep|>'
    return f"<|open|>tools<|sep|>{call}<|close|>tools<|sep|>"


def _braces(name: str, given: dict[str, str]) -> str:
    inner = ",".join(f'{key}:<|"|>{value}<|"|>' for key, value in given.items())
    return f"<|tool_call>call:{name}{{{inner}}}<tool_call|>"


def _pythonic(name: str, given: dict[str, str]) -> str:
    return f"{name}({', '.join(f'{key}={json.dumps(value)}' for key, value in given.items())})"


def _atem(name: str, given: dict[str, str]) -> str:
    inner = _parameters(given, '<atem:parameter name="{key}">{value}</atem:parameter>', "\n")
    call = f'<atem:invoke name="{name}">{inner}\n</atem:invoke>'
    return f"<atem:function_calls>\n{call}\n</atem:function_calls>"


def _typed(name: str, given: dict[str, str]) -> str:
    call = json.dumps({"name": name, "args": given}, ensure_ascii=False)
    return f"<|message_model|>{name}<|content_invoke_tool_json|>{call}<|end_message|>"


def _action(name: str, given: dict[str, str]) -> str:
    call = json.dumps([{"tool_call_id": "0", "tool_name": name, "parameters": given}], indent=4, ensure_ascii=False)
    return f"<|START_ACTION|>{call}<|END_ACTION|>"


GRAMMARS: dict[str, tuple[str, Write]] = {
    "object": ("alibaba/qwen3-max", lambda n, a: f"<tool_call>{_json(n, a)}</tool_call>"),
    "object on lines": ("alibaba/qwen3-32b", lambda n, a: f"<tool_call>\n{_json(n, a)}\n</tool_call>"),
    "function": ("alibaba/qwen3-coder-plus", lambda n, a: f"<tool_call>\n{_function(n, a)}\n</tool_call>"),
    "bare function": ("alibaba/qwen3-coder-plus", _function),
    "pairs": ("zai/glm-4.7", lambda n, a: f"<tool_call>{_pairs(n, a)}\n</tool_call>"),
    "barred": ("deepseek/deepseek-flash", _barred),
    "tokens": ("deepseek/deepseek-chat", _tokens),
    "sections": ("moonshotai/kimi-k2.5", _sections),
    "invoke": ("minimax/MiniMax-M2.5", lambda n, a: f"<minimax:tool_call>\n{_invoke(n, a)}\n</minimax:tool_call>"),
    "prefixed": ("minimax/MiniMax-M3", _prefixed),
    "bare invoke": ("openrouter/anthropic/claude-opus-5", _invoke),
    "list": ("tencent/hunyuan-a13b", lambda n, a: f"<tool_calls>[{_json(n, a)}]</tool_calls>"),
    "list of pairs": ("tencent/hy3", lambda n, a: f"<tool_calls><tool_call>{_pairs(n, a)}</tool_call></tool_calls>"),
    "worded": ("longcat/longcat-flash-chat", lambda n, a: f"<longcat_tool_call>{_json(n, a)}</longcat_tool_call>"),
    "seed": (
        "vllm/ByteDance-Seed/Seed-OSS-36B-Instruct",
        lambda n, a: f"<seed:tool_call>\n{_function(n, a)}\n</seed:tool_call>",
    ),
    "channels": ("moonshotai/kimi-k3", _channels),
    "braces": ("google/gemma-4-31b-it", _braces),
    "named json": ("mistral/mistral-large-4", lambda n, a: f"[TOOL_CALLS]{n}[ARGS]{json.dumps(a)}"),
    "named json in a list": ("mistral/mistral-large-4", lambda n, a: f"[TOOL_CALLS] [{_json(n, a)}]"),
    "named json, one": ("groq/llama-3.3-70b-versatile", lambda n, a: f"<|python_tag|>{_json(n, a)}"),
    "keyed": ("regolo-ai/apertus-70b", lambda n, a: f"<|tools_prefix|>{json.dumps([{n: a}])}<|tools_suffix|>"),
    "action": ("cohere/command-a-plus-05-2026", _action),
    "plugin": ("internlm/intern-s1", lambda n, a: f"<|action_start|> <|plugin|>\n{_json(n, a)}<|action_end|>"),
    "dots": (
        "openrouter/dots-studio/dots-3-note-preview:free",
        lambda n, a: f"<dots_function_call>\n{_invoke(n, a)}\n</dots_function_call>",
    ),
    "typed": ("baseten/thinkingmachines/inkling-small", _typed),
    "atem": ("openrouter/meta/muse-glimmer-30b", _atem),
    "pythonic": (
        "openrouter/liquid/lfm-2.5-2.6b",
        lambda n, a: f"<|tool_call_start|>[{_pythonic(n, a)}]<|tool_call_end|>",
    ),
    "pythonic, marked": (
        "deepinfra/meta-llama/Llama-4-Scout-17B-16E-Instruct",
        lambda n, a: f"<|python_start|>[{_pythonic(n, a)}]<|python_end|>",
    ),
    "param": (
        "amd/MiniCPM5-2B",
        lambda n, a: f'<function name="{n}">' + _parameters(a, '<param name="{key}">{value}</param>') + "</function>",
    ),
    "recipient": ("openrouter/reflection/beam-1.0-501b-a23b", _recipient),
    "fence": ("alibaba/qwen3-32b", lambda n, a: f"```tool_call\n{_json(n, a)}\n```"),
}

# Each line of what stands for the block, B, follows the indentation or the mark before it.
QUOTED = {
    "ticks": "It holds `B` literally.",
    "two ticks": "It holds ``B`` literally.",
    "two ticks and spaces": "It holds `` B `` literally.",
    "four ticks": "It holds ````B```` literally.",
    "ticks far off": "It says `first, then B and more` here.",
    "ticks over lines": "It says `first\nB\nlast` here.",
    "ticks at the end": "It holds `B`",
    "a fence": "So:\n```\nB\n```\nThat is it.",
    "a fence with a word": "So:\n\n```xml\nB\n```\n",
    "a fence of tildes": "So:\n~~~\nB\n~~~\n",
    "a long fence": "So:\n`````text\nB\n`````\n",
    "a fence that is not closed": "So:\n\n```json\nB\n",
    "a fence in a list": "- so:\n      ```\n      B\n      ```\n",
    "a fence in a numbered list": "1. so:\n   ```\n   B\n   ```\n2. done",
    "a fence in a block quote": "> ```\n> B\n> ```\n",
    "a block quote": "The tool said:\n> B\n> more",
    "a block quote at once": ">B",
    "a deep block quote": "It said:\n\n> > B\n",
    "a block quote in a list": "- it said:\n\n  > B\n",
    "a block quote that goes on": "> The tool said\nand then B, no more.",
    "indented code": "Example:\n\n    B\n",
    "indented by a tab": "Example:\n\n\tB\n",
    "indented code in a list": "- so:\n\n      B\n",
    "indented behind a line": "Example:\n    B\nEnd.",
    "pre": "<pre>B</pre>",
    "pre over lines": "See:\n<pre>\nB\n</pre>\nEnd.",
    "pre and code": "<pre><code>B</code></pre>",
    "pre over a blank line": "<pre>\nfirst\n\nB\n\n</pre>",
    "code": "It holds <code>B</code>.",
    "code over lines": "It holds\n<code>\nB\n</code>\n",
    "code with a class": '<code class="x">B</code> is it.',
    "code in capitals": "It holds <CODE>B</CODE>.",
    "blockquote": "<blockquote>B</blockquote>",
    "blockquote over lines": "<blockquote>\n\nB\n\n</blockquote>\n",
    "q": "He said <q>B</q>.",
    "textarea": "<textarea>B</textarea>",
    "samp": "It printed <samp>B</samp>.",
    "a comment": "<!-- B -->",
    "a comment in a line": "Text <!-- B --> text.",
    "a comment over lines": "Text\n\n<!--\nnote\n\nB\n-->\n",
    "a table": "| a | b |\n|---|---|\n| x | B |\n",
    "a first cell": "| a | b |\n|---|---|\n| B | x |\n",
    "a table without edges": "a | b\n---|---\nx | B\n",
    "a table of HTML": "<table><tr><td>B</td></tr></table>",
    "straight marks": 'He said "B" and left.',
    "straight marks, later": 'He said "first, B, last" and left.',
    "straight marks over lines": 'He said "first\nB" and left.',
    "straight marks around lines": 'He said "\nB\n" and left.',
    "straight marks around paragraphs": 'He said "first\n\nB\n\n" and left.',
    "straight marks between Chinese words": '他说"B"，然后走了。',
    "single marks": "He said 'B' and left.",
    "single marks, later": "He said 'first, B' and I'll go.",
    "curly marks": "He said “B” and left.",
    "curly marks over lines": "He said “first\nB\nlast” and left.",
    "single curly marks": "He said ‘B’.",
    "single curly marks, later": "He said ‘don’t, B’.",
    "German marks": "Er sagte „B“.",
    "German marks, later": "Er sagte: „Hier steht B, mehr nicht“.",
    "German marks that close high": "Er sagte „B”.",
    "single German marks": "Er sagte ‚B‘.",
    "guillemets": "Il dit «B».",
    "guillemets with spaces": "Il dit « B ».",
    "guillemets inwards": "Er sagte »B«.",
    "single guillemets": "Il dit ‹B›.",
    "Swedish marks": "Han sa ”B”.",
    "corner marks": "他写的是「B」，仅此而已。",
    "corner marks, later": "他写的是「例如B这样」，仅此而已。",
    "double corner marks": "他写的是『B』。",
    "Chinese marks": "他写的是“B”，仅此而已。",
    "book marks": "见《B》。",
    "full marks": "他说＂B＂。",
    "half corner marks": "彼は｢B｣と書いた。",
    "low Japanese marks": "彼は〝B〟と書いた。",
}

REAL = {
    "alone": "B",
    "behind text": "Let me look.\n\nB",
    "behind text on the line": "Let me look. B",
    "behind a colon": "Let me look:\nB",
    "before text": "B\nI will report.",
    "between paragraphs": "First.\n\nB\n\nThen more.",
    "between Chinese sentences": "我来查一下。B请稍等。",
    "between Chinese lines": "我来查一下：\nB\n请稍等。",
    "behind a list": "I will:\n- look\n- tell\n\nB",
    "right behind a list": "1. look\n2. tell\nB",
    "in a list": "1. look:\n   B\n",
    "behind a fence": "So:\n```py\nprint('a')\n```\nB",
    "behind a fence and a line": 'So:\n\n```\n`"\n```\n\nB',
    "behind a fence in a list": "- so:\n  ```\n  x\n  ```\n\nB",
    "behind two fences": "```\na\n```\n~~~\nb\n~~~\nB",
    "behind a block quote": "> He asked.\n\nB",
    "behind an empty item of a block quote": "> -\nB",
    "behind indented code": "So:\n\n    x = 1\n\nB",
    "behind a table": "| a | b |\n|---|---|\n| 1 | 2 |\n\nB",
    "behind a heading": "# Plan\nB",
    "behind a rule": "Text\n\n---\nB",
    "behind pre": "<pre>x</pre>\nB",
    "behind pre over lines": "<pre>\n```\n</pre>\n\nB",
    "behind code": "Run <code>x</code> now. B",
    "behind the end of pre": "<pre>\nx\n</pre> B",
    "behind pre in a sentence": "Use <pre> here. B",
    "behind a key that stays open": "<kbd>\nB",
    "behind a quote that stays open": "Well:\n<q>yes\nB",
    "behind ticks": "Run `x` and ``y ` z`` now. B",
    "behind a comment": "<!-- x -->\nB",
    "behind an apostrophe": "I'll look, don't worry. B",
    "behind an apostrophe on the line before": "I'll look; it's the users' choice.\nB",
    "between apostrophes": "I'll look. B That's it, isn't it?",
    "behind a curly apostrophe": "I’ll look, don’t worry.\nB\nIt’s done.",
    "behind inches": 'The 5" disk. B',
    "between inches": 'The 5" disk.\nB\nThe 6" one.',
    "behind an odd mark": 'He wrote "yes. I will look.\n\nB',
    "between odd marks": 'He wrote "yes. I will look.\n\nB\n\nHe said "no" then.',
    "behind a tick paragraphs before": "Press ` first.\n\nThen wait.\n\nB",
    "behind a tick": "Press ` first.\nB",
    "behind an odd curly mark": "He wrote “yes. I will look.\n\nB",
    "between quotations": 'He said "yes". B Then "no".',
    "between Chinese quotations": "他说“好”。B他说“不”。",
    "between guillemets": "Il dit «oui». B Il dit «non».",
    "between French guillemets": "Il dit « oui ». B Il dit « non ».",
    "behind German marks": "Er sagte „ja“. B",
    "between ticks": "Run `a`. B Run `b`.",
    "behind a title": "《论语》里没有。B",
    "behind less-than": "If a < b and c > d, then:\nB",
    "behind a bar": "a | b\nB",
    "twice": "B\nB",
    "twice on a line": "Both: BB",
    "three with text": "One: B\nTwo: B\nThree: B",
    "with spaces": "  B  \n",
    "behind an emoji": "🔧 B",
}
RETOLD: dict[str, Callable[[str], str]] = {
    "refused": lambda block: f"The document says: {block} - I will not do that.",
    "alone": lambda block: block,
    "at the end": lambda block: f"This is what it says:\n\n{block}",
    "on one line": lambda block: f"It says {' '.join(block.split())} there.",
    "in parentheses": lambda block: f"It wrote ({block}).",
}
"""Quotations that only the prompt shows."""

HELD: dict[str, Callable[[str], str]] = {
    "as it is": lambda block: f"Summarise this: {block}",
    "as entities": lambda block: f"<p>{html.escape(block)}</p>",
    "as entities of entities": lambda block: html.escape(html.escape(block)),
    "in JSON": lambda block: json.dumps({"text": f"x {block}"}),
    "in JSON in JSON": lambda block: json.dumps({"text": json.dumps({"a": block}, ensure_ascii=False)}),
    "in a block quote": lambda block: "> " + block.replace("\n", "\n> "),
    "indented": lambda block: "    " + block.replace("\n", "\n    "),
    "in a fence": lambda block: f"````\n{block}\n````",
    "in a comment": lambda block: "// " + block.replace("\n", "\n// "),
    "with spaces": lambda block: block.replace("><", "> <"),
}


def cases(write: Write, ways: dict[str, str]) -> Iterator[tuple[str, str]]:
    """(name, text) of each way with each call, every line of the block with what stands before its first."""
    for number, (name, given) in enumerate(CALLS):
        block = write(name, given)
        for way, text in ways.items():
            before = text.partition("B")[0].rpartition("\n")[2]
            margin = before if not before.strip(" \t>") else ""
            yield f"{way}, call {number}", text.replace("B", block.replace("\n", "\n" + margin))
