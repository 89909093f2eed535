"""D1-D3: thinking that arrives between tags inside the answer."""

from __future__ import annotations

import pytest
from cases import each

import cnllm

from .support import answers, plan, read, told, wire


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
@each("model", ["openai/gpt-4.1", "deepseek/deepseek-flash", "zai/glm-4.7"])
@each(
    "text",
    [
        "The tag <think> opens a block and </think> closes it.",
        "Use `<think>` like this:\n```\n<think>Hm.</think>\n```\n",
        "no <think> at the head",
    ],
)
def test_D3_tags_in_the_middle_of_an_answer_are_text(model: str, text: str) -> None:
    for pieces in ([text], list(text)):
        _, reply = answers(model, wire(pieces))
        assert (reply.text, reply.reasoning) == (text, "")


def test_D3_a_model_without_the_flag_keeps_them_at_the_head_too() -> None:
    assert read("openai/gpt-4.1", "<think>Hm.</think> Blue.").text == "<think>Hm.</think> Blue."
