"""What needs no Daft: settings are checked before a worker has them, and an `Answer` has each count of a reply."""

from __future__ import annotations

import pytest

from cnllm import UnknownModel, Usage
from cnllm.daft.answer import AnswerUsage
from cnllm.daft.settings import PromptSettings, read_settings


def settings(model: str, **options: object) -> PromptSettings:
    return read_settings("cnllm", model, None, None, options, as_answer=False)


def test_a_model_with_its_options_is_taken() -> None:
    made = settings("zai/glm-4.7", temperature=0.5, concurrency=3)
    assert (made.model, made.options, made.concurrency) == ("zai/glm-4.7", {"temperature": 0.5}, 3)


def test_an_unknown_model_and_a_wrong_option_are_errors() -> None:
    with pytest.raises(UnknownModel, match="nobody"):
        settings("nobody/glm-4.7")
    with pytest.raises(TypeError, match="temprature"):
        settings("zai/glm-4.7", temprature=0.5)


def test_an_answer_has_each_count_of_a_reply() -> None:
    assert tuple(AnswerUsage.model_fields) == Usage.__struct_fields__
