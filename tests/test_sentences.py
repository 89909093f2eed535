"""Where sentences end, and that it does not matter how the text arrives."""

import itertools

from cases import each
from hypothesis import given
from hypothesis import strategies as st

from cnllm.sentences import Sentences


def split(text: str, *cuts: int) -> list[str]:
    """The sentences of a text that arrives cut at these places."""
    sentences, out = Sentences(), []
    places = [0, *sorted(cuts), len(text)]
    for start, end in itertools.pairwise(places):
        out += sentences.feed(text[start:end])
    return out + sentences.close()


WHOLE: dict[str, list[str]] = {
    "chinese": ["你好。", "今天天气不错！", "你呢？", "好"],
    "closing quotes": ["他说：“好。”", "然后走了。", '"嗯。"', "她说。", '"Hi." ', "He left. ", "(Yes.) ", "No."],
    "runs of marks": ["真的吗？！", "Really?! ", "Wait... what? ", "谢谢……不是吗？"],
    "numbers": ["It costs 3.14 dollars, 1,000.50 in all. ", "At 10:30 p.m. we left. ", "圆周率是3.14159，v2.0。", "好"],
    "urls": ["See https://a.b/c.d?x=1!y. ", "Then www.e.org/f?g. ", "访问https://a.com/x.html。", "下一句。"],
    "a url in chinese": ["见 https://例子.com/a?q=中文.b 好。", "谢谢"],
    "western marks before chinese": ["OK?", "好的。", "Go!", "走"],
    "abbreviations": ["Mr. Smith, e.g. J. K. Smith of the U.S. Army, paid. ", "Fig. 3 shows. ", "No. ", "I disagree."],
    "titles and months": [
        "Mt. Everest, Lt. Kay and Sen. Lee. ",
        "On Sept. 5 and Jan. 3, 2 men. ",
        "It is a mar. ",
        "So.",
    ],
    "a wide point": ["終わりです．", "次は３．１４と3．14．\n", "１．第一です．", "図１．", "次"],
    "the row of a table": ["|a. B.|c。|\n", "|---|---|\n", "| One. | Two! | 三。 | four? |\n", "End. ", "So."],
    "paragraphs and lists": [
        "Intro:\n\n",
        "1. First item. ",
        "Second.\n",
        "2. Two\n",
        "- a\n",
        "- hard\nwrapped line.",
    ],
    "inline code": ["Use `a. B` now. ", "Then ``c ` d. E``."],
    "emphasis": ["**Note.** ", "这是**重点。**", "然后。", "**下一句。**"],
    "a block": ["Run:\n\n", "```python\nprint('a. B。c')\n\nx = 1. \n```\n", "After. ", "Done."],
    "blocks of tildes and in quotations": ["~~~\na. B\n```\n~~~\n", "So. ", "Now:\n", "> ```\n> a. B\n> ```\n", "End."],
    "a block that is not closed": ["```\na. B\n\n`` c. D"],
    "three ticks that open no block": ["```a. B``` is code. ", "So."],
}


@each("case", WHOLE)
def test_sentences_are_whole_however_they_arrive(case: str) -> None:
    text = "".join(WHOLE[case])
    assert split(text) == WHOLE[case]
    assert split(text, *range(len(text))) == WHOLE[case]


MARKS = '|．.。！？?!`"*_>…)-’aB1中 \n'
PIECES = st.lists(
    st.sampled_from([*MARKS, "```", "~~~", "\n\n", "**", "://", "www.", "Mr", "e.g."]) | st.text(max_size=4),
    max_size=60,
).map("".join)


@given(text=PIECES, data=st.data())
def test_any_way_of_cutting_the_text_gives_the_same_sentences(text: str, data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=20))
    whole = split(text)
    assert "".join(whole) == text
    assert all(whole)
    assert split(text, *cuts) == whole == split(text, *range(len(text)))


def test_a_sentence_comes_as_soon_as_it_is_known_to_be_over() -> None:
    sentences = Sentences()
    assert sentences.feed("你好。") == []
    assert sentences.feed("今") == ["你好。"]
    assert sentences.feed("天 3.") == []
    assert sentences.feed("14 好。\n") == []
    assert sentences.feed("```") == ["今天 3.14 好。\n"]
    assert sentences.feed("\nx. Y\n```") == []
    assert sentences.feed("\n\nZ") == ["```\nx. Y\n```\n\n"]
    assert sentences.close() == ["Z"]
    assert sentences.close() == []


@each("unit", ["a. B ", " ", ".", "`", "a", "\n", "```\n", '"', "你好。", "* ", "。"])
def test_a_long_text_in_small_pieces_comes_back_as_it_was(unit: str) -> None:
    sentences = Sentences()
    out = [piece for _ in range(20_000) for piece in sentences.feed(unit)]
    assert "".join([*out, *sentences.close()]) == unit * 20_000
