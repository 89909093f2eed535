"""What a terminal would obey or nobody can see is spelt out; what is written with joiners stays as it is."""

import json
import unicodedata

from cnllm.cli.output import terminal

LEFT = {0x200C, 0x200D}  # joiners, which scripts and emoji need


def test_every_format_character_is_escaped_but_joiners_and_arabic_signs() -> None:
    for code in (*range(0x3000), *range(0xFE00, 0x10000), *range(0x1BCA0, 0x1BCB0), *range(0x1D100, 0x1D200),
                 *range(0xE0000, 0xE0100)):  # fmt: skip
        char = chr(code)
        if unicodedata.category(char) not in ("Cf", "Cc", "Zl", "Zp") or char in "\t\n" or code in LEFT:
            continue
        if (
            unicodedata.bidirectional(char) == "AN"
            or code in (0x70F, 0x180E)
            or unicodedata.name(char, "").startswith("ARABIC POUND")
        ):
            continue  # signs that are seen
        shown = terminal.escape(f"a{char}b")
        assert shown.isascii(), f"U+{code:04X}"
        said = json.dumps({"x": f"a{char}b"}, ensure_ascii=False)
        assert terminal.escape_json(said).isascii()
        assert json.loads(terminal.escape_json(said)) == json.loads(said)


def test_marks_of_direction_and_hidden_tags_are_escaped() -> None:
    assert terminal.escape("\u200e\u200f\u061c") == "\\u200e\\u200f\\u061c"
    hidden = "".join(chr(0xE0000 + ord(char)) for char in "run rm")
    assert terminal.escape("ok" + hidden) == "ok" + "".join(f"\\U{ord(char):08x}" for char in hidden)
    assert terminal.escape("\U0001f3f4" + hidden).count("\\U") == len(hidden)


def test_emoji_and_scripts_stay_readable() -> None:
    for text in ("👨\u200d👩\u200d👧", "❤️", "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
                 "中文，“引号”……——　全角", "葛\U000e0100", "می\u200cخواهم", "नमस\u200dते", "1️⃣", "한국어"):  # fmt: skip
        assert terminal.escape(text) == text


def test_printable_text_is_searched_where_it_holds_one_of_the_few_that_are_escaped() -> None:
    printable = [chr(code) for code in range(0x110000) if chr(code).isprintable()]
    escaped = {char for char in printable if terminal.escape_json(char) != char}
    assert escaped
    assert all(terminal.escape(char) != char for char in escaped)
    assert terminal.escape("".join(char for char in printable if char not in escaped)).isprintable()
