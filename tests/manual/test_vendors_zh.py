"""The pages in Chinese on vendors: every known issue has a sentence, and no endpoint is left out."""

from __future__ import annotations

import re

import pytest

from cnllm.model_facts.known_issues import known_issues
from docs.generate import provider_pages
from docs.generate.builtin import registry
from docs.generate.vendors_zh import VENDORS, in_chinese, pages

HAN = re.compile(r"[\u4e00-\u9fff]")


def test_every_known_issue_has_a_sentence_in_chinese() -> None:
    for provider in registry().providers:
        for issue in known_issues(registry().resolve(f"{provider}/any")):
            assert HAN.search(in_chinese(issue.text)), issue


def test_an_issue_without_a_sentence_says_where_to_write_it() -> None:
    with pytest.raises(LookupError, match=r"zh_CN\.po: no Chinese for 'It sings\.'"):
        in_chinese("It sings.")


def test_numbers_of_an_issue_are_those_of_the_registry() -> None:
    assert in_chinese(
        "It takes temperature from 0 up to 1.5 only; cnllm moves other values into the range, or leaves them out."
    ) == ("`temperature` 只能在 0 到 1.5 之间；超出时 cnllm 改为范围内最近的值，或者去掉")
    assert in_chinese("While it reasons: it refuses seed; cnllm leaves it out, with a note.").startswith(
        "思考时：不接受 `seed`"
    )


def test_a_page_has_every_endpoint_with_its_address_and_key() -> None:
    found = dict(pages())
    assert found.keys() == {"index", *VENDORS}
    for name, vendor in VENDORS.items():
        for provider in vendor.endpoints:
            flags = registry().resolve(f"{provider}/any").flags
            assert f"`{flags.base_url}`" in found[name]
            assert f"`{(flags.keys or [''])[0]}`" in found[name]


def test_a_page_opens_with_the_vendors_own_current_model() -> None:
    defaults = registry().default_models
    opened = {
        name: re.findall(r"^cnllm -m (\S+)", text, re.MULTILINE)[0]
        for name, text in [*provider_pages.pages(), *(page for page in pages() if page[0] != "index")]
    }
    for page, model in opened.items():
        status = registry().resolve(model).flags.status
        assert status is None or status.is_ != "retired", (page, model)
        if own := [name for name in defaults if name.startswith(f"{model.partition('/')[0]}/")]:
            assert model in own, (page, model)
    assert opened["alibaba-cn"].partition("/")[2] == opened["alibaba"].partition("/")[2]
    assert opened["moonshot"] == opened["moonshotai-cn"]
