"""The library instructor: its modes over OpenAI's and Anthropic's APIs."""

from typing import Iterable, Literal

import instructor
from anthropic import Anthropic
from openai import OpenAI
from pydantic import BaseModel

from suite import ASK, BASE, MODEL, V1, case, run

client = OpenAI(base_url=V1, api_key="none", max_retries=0)
messages = [{"role": "user", "content": ASK}]


class Weather(BaseModel):
    """The weather of a city."""

    city: Literal["Paris", "Oslo"]
    days: Literal[1, 2, 3]


def check(mode, **more):
    made = instructor.from_openai(client, mode=mode)
    got = made.chat.completions.create(model=MODEL, messages=messages, response_model=Weather, max_retries=0,
                                       max_tokens=400, temperature=0, **more)
    assert isinstance(got, Weather), got


for mode in ("TOOLS", "TOOLS_STRICT", "JSON_SCHEMA"):
    @case(f"{mode}")
    def _(mode=mode):
        check(getattr(instructor.Mode, mode))


@case("RESPONSES_TOOLS")
def _():
    made = instructor.from_openai(client, mode=instructor.Mode.RESPONSES_TOOLS)
    got = made.responses.create(model=MODEL, input=ASK, response_model=Weather, max_retries=0, max_output_tokens=400)
    assert isinstance(got, Weather), got


@case("ANTHROPIC_TOOLS")
def _():
    made = instructor.from_anthropic(Anthropic(base_url=BASE, api_key="none", max_retries=0),
                                     mode=instructor.Mode.ANTHROPIC_TOOLS)
    got = made.messages.create(model=MODEL, messages=messages, response_model=Weather, max_retries=0, max_tokens=400)
    assert isinstance(got, Weather), got


@case("Partial, streamed")
def _():
    made = instructor.from_openai(client, mode=instructor.Mode.JSON_SCHEMA)
    last = None
    for last in made.chat.completions.create_partial(model=MODEL, messages=messages, response_model=Weather,
                                                     max_retries=0, max_tokens=400, temperature=0):
        pass
    assert last.city in ("Paris", "Oslo")


@case("from_provider")
def _():
    made = instructor.from_provider(f"openai/{MODEL}", base_url=V1, api_key="none")
    assert isinstance(made.chat.completions.create(messages=messages, response_model=Weather, max_retries=0,
                                                   max_tokens=400), Weather)


run("instructor")
