"""Arguments of a tool call against the tool's schema: jsonschema in two ways, and pydantic with a model by hand."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

import jsonschema
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from benchmarks.payloads import PARAMETERS, Setting
from benchmarks.runners.judged import judged


class Arguments(BaseModel):
    """Check the rules of PARAMETERS by hand."""

    model_config = ConfigDict(extra="forbid", strict=True)

    city: str
    unit: Literal["celsius", "fahrenheit"] | None = None
    days: Annotated[int, Field(ge=1, le=14)] | None = None
    fields: list[str] | None = None
    note: str | None = None


def validate(setting: Setting) -> Callable[[], int]:
    validator = jsonschema.Draft202012Validator(PARAMETERS)
    return judged(lambda arguments: not any(validator.iter_errors(arguments)))


def validate_anew(setting: Setting) -> Callable[[], int]:
    def fits(arguments: Any) -> bool:
        try:
            jsonschema.validate(arguments, PARAMETERS, cls=jsonschema.Draft202012Validator)
        except jsonschema.ValidationError:
            return False
        return True

    return judged(fits)


def validate_pydantic(setting: Setting) -> Callable[[], int]:
    def fits(arguments: Any) -> bool:
        try:
            Arguments.model_validate(arguments)
        except ValidationError:
            return False
        return True

    return judged(fits)
