"""D1-D3: thinking that arrives between tags inside the answer."""

from __future__ import annotations

import pytest
from cases import each

import cnllm

from .quotations import QUOTED
from .support import answers, called, plan, read, told, tool, wire


# ── D1 ───────────────────────────────────────────────────────────────────────
@each(
    "model",
    ["minimax/MiniMax-M2.5", "minimax/MiniMax-M3", "openrouter/minimax/minimax-m2.5", "vllm/MiniMaxAI/MiniMax-M2"],
)
def test_D1_tags_at_the_head_of_the_answer_are_reasoning(model: str) -> None:
    for pieces in (["<think>Hm.</think>\n\nBlue."], list("<think>Hm.</think>\n\nBlue.")):
        events, reply = answers(model, wire(pieces))
        assert (reply.reasoning, reply.text) == ("Hm.", "Blue.")
        assert told(events)[:2] == ("Blue.", "Hm.")


def test_D1_the_switch_that_keeps_it_apart_is_sent() -> None:
    assert plan("minimax/MiniMax-M2.5", reasoning="on").body["reasoning_split"] is True


@each(
    "model, opening, closing",
    [
        ("vllm/MiniMaxAI/MiniMax-M3", "<mm:think>", "</mm:think>"),
        ("vllm/ByteDance-Seed/Seed-OSS-36B-Instruct", "<seed:think>", "</seed:think>"),
        ("moonshotai/kimi-vl-a3b-thinking", "◁think▷", "◁/think▷"),
    ],
)
def test_D1_other_spellings_are_data(model: str, opening: str, closing: str) -> None:
    found = read(model, f"{opening}Hm.{closing} Blue.")
    assert (found.reasoning, found.text) == ("Hm.", "Blue.")


# ── D2 ───────────────────────────────────────────────────────────────────────
@pytest.fixture
def opened(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A server whose prompt template writes the opening tag."""
    file = tmp_path_factory.mktemp("registry") / "mine.toml"
    file.write_text(
        '[providers.home]\ntitle = "x"\nprotocol = "openai-chat"\nbase_url = "http://127.0.0.1:9/v1"\nkeys = []\n'
        '[models."home/r1"]\nreasoning = { tags = ["<think>", "</think>"], tags_at = "start-open" }\n'
    )
    return str(file)


@pytest.mark.parametrize("text", ["Hm.</think>\n\nBlue.", "<think>Hm.</think>\n\nBlue."])
def test_D2_only_the_closing_tag_comes(opened: str, text: str) -> None:
    model = cnllm.Registry.load(opened).resolve("home/r1")
    for at in range(len(text)):
        parser = cnllm.engine.StreamParser(model)
        for chunk in wire([text[:at], text[at:]]):
            parser.feed(chunk)
        reply = parser.close()
        assert (reply.reasoning.strip(), reply.text) == ("Hm.", "Blue.")


def test_D2_neither_tag_comes_because_the_budget_ran_out(opened: str) -> None:
    parser = cnllm.engine.StreamParser(cnllm.Registry.load(opened).resolve("home/r1"))
    for chunk in wire(["Hm, let ", "me see"], finish="length"):
        parser.feed(chunk)
    reply = parser.close()
    assert (reply.reasoning, reply.text, reply.finish) == ("Hm, let me see", "", "length")
    assert "budget-spent-on-reasoning" in [note.code for note in reply.notes]


# ── D3 ───────────────────────────────────────────────────────────────────────
MODELS = ["openai/gpt-4.1", "deepseek/deepseek-flash", "zai/glm-4.7", "minimax/MiniMax-M2.1", "moonshotai/kimi-k3"]


@each("model", MODELS)
@each(
    "text",
    [
        "Use `<think>` like this:\n```\n<think>Hm.</think>\n```\n",
        "It is ``a ` <think>b</think>`` there.",
        "So `it goes on, <think> and\non </think>` here.",
        "> <think>Hm.</think>\n",
        "So:\n\n    <think>Hm.</think>\n",
        "~~~xml\n</think>\n~~~\n",
        "| tag | use |\n|---|---|\n" + "| a word | text |\n" * 20 + "| <think> | it begins |\n| it ends | </think> |\n",
    ],
)
def test_D3_tags_in_code_and_in_block_quotes_are_text(model: str, text: str) -> None:
    for pieces in ([text], list(text)):
        _, reply = answers(model, wire(pieces))
        assert (reply.text, reply.reasoning) == (text, "")


@each("model", MODELS)
@each(
    "text, stands, thought",
    [
        ("<think>Hm.</think> Blue.", "Blue.", "Hm."),
        ("Red.<think>Hm.</think>Blue.", "Red.Blue.", "Hm."),
        ("Red. <think>Hm.</think> Blue. <THINK>So.</THINK >", "Red. Blue. ", "Hm.So."),
        ("Press ` first. <think>Hm.</think> Blue.", "Press ` first. Blue.", "Hm."),
        ("`x` and\n```\ny\n```\n< think\n>Hm.</ think>Blue.", "`x` and\n```\ny\n```\nBlue.", "Hm."),
        ("“Red <think>Hm.</think>”", "“Red ”", "Hm."),
        ("Red.</think>", "Red.", ""),
        ("Red.\n\n</THINK >\n\nBlue.", "Red.\n\nBlue.", ""),
        ("</think>Blue.", "Blue.", ""),
        ("Red. <think>Hm", "Red. ", "Hm"),
    ],
)
def test_D3_tags_go_from_anywhere_else_on_every_model(model: str, text: str, stands: str, thought: str) -> None:
    for pieces in ([text], list(text)):
        events, reply = answers(model, wire(pieces))
        assert (reply.text, reply.reasoning) == (stands, thought)
        assert told(events)[:2] == (stands, thought)
        stray = [note for note in reply.notes if note.code == "tag-stripped"]
        assert [f"({len(note.said)} characters)" in note.did for note in stray] == [True] * (not thought)


MENTIONS = [
    *("straight marks", "curly marks", "German marks", "guillemets", "guillemets with spaces", "Swedish marks"),
    *("corner marks", "full marks", "single marks", "book marks", "code", "code with a class", "code over lines", "q"),
    *("samp", "blockquote over lines", "a table of HTML", "a comment in a line", "a table without edges"),
]


@each("way", MENTIONS)
def test_D3_a_tag_that_is_only_mentioned_is_text(way: str) -> None:
    for tags in ("<think>", "</think>", "<think>Hm.</think>", "<think>\nHm.</think>"):
        text = QUOTED[way].replace("B", tags)
        for pieces in ([text], list(text), *([text[:at], text[at:]] for at in range(1, len(text)))):
            _, reply = answers("zai/glm-4.7", wire(pieces))
            assert (reply.text, reply.reasoning) == (text, ""), pieces
            assert not reply.notes


@each("way", ["straight marks", "curly marks", "full marks"])
@each("before", ["“So.” B And: ", "`x` & B\n"])
def test_D3_a_tag_that_is_mentioned_behind_a_call_is_text(way: str, before: str) -> None:
    text = QUOTED[way].replace("B", "<think>Hm.</think>")
    call = '<tool_call>{"name": "rm", "arguments": {"path": "/"}}</tool_call>'
    whole = before.replace("B", call) + text
    for pieces in ([whole], list(whole)):
        _, reply = answers("zai/glm-4.7", wire(pieces), [tool("rm", path="string")])
        assert (called(reply), reply.reasoning) == ([("rm", {"path": "/"})], "")
        assert reply.text.endswith(text)


@each(
    "text",
    [
        "The (<think>) tag opens and (</think>) closes.",
        "**<think>** opens, **</think>** closes.",
        "标签（<think>）和【</think>】。",
        "Use \\<think> and \\</think>.\n\nMore.",
        "re.sub(r'<think>.*?</think>', '', s)\n\nMore.",
        'He writes "<think>\n\nHm.\n</think>" first.',
    ],
)
def test_D3_a_tag_with_marks_or_an_escape_is_text(text: str) -> None:
    for pieces in ([text], list(text), *([text[:at], text[at:]] for at in range(1, len(text)))):
        _, reply = answers("zai/glm-4.7", wire(pieces))
        assert (reply.text, reply.reasoning) == (text, ""), pieces


@each(
    "text, stands",
    [
        ('"Yes."<think>Hm.</think> No.', '"Yes." No.'),
        ('He said "yes" <think>Hm.</think> and "no".', 'He said "yes" and "no".'),
        ("他说“好”。<think>Hm.</think>“不”。", "他说“好”。“不”。"),
        ("Run <code>x</code>. <think>Hm.</think> Blue.", "Run <code>x</code>. Blue."),
        ("The <kbd> key. <think>Hm.</think> Blue.", "The <kbd> key. Blue."),
        ("(Red. <think>Hm.</think>)", "(Red. )"),
        ('If a < b, "so". <think>Hm.</think> No.', 'If a < b, "so". No.'),
        ("x (<think>Hm.</think>) y", "x () y"),
    ],
)
def test_D3_a_tag_behind_a_quotation_is_a_tag(text: str, stands: str) -> None:
    for pieces in ([text], list(text), *([text[:at], text[at:]] for at in range(1, len(text)))):
        _, reply = answers("zai/glm-4.7", wire(pieces))
        assert (reply.text, reply.reasoning) == (stands, "Hm."), pieces


@each("model", MODELS)
def test_D3_a_tag_in_the_arguments_of_a_call_belongs_to_them(model: str) -> None:
    block = '<tool_call>{"name": "write", "arguments": {"text": "<think>Hm.</think>"}}</tool_call>'
    _, reply = answers(model, wire(list(f"Red. {block}")), [tool("write", text="string")])
    assert called(reply) == [("write", {"text": "<think>Hm.</think>"})]
    assert (reply.text, reply.reasoning) == ("Red. ", "")
