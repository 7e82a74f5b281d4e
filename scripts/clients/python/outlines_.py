"""The library outlines, over OpenAI's, vLLM's, Anthropic's and ollama's APIs."""

from typing import Literal

import anthropic
import ollama
import openai
import outlines
from pydantic import BaseModel

from suite import ANSWER, ASK, BASE, MODEL, QUESTION, V1, case, includes, run

client = openai.OpenAI(base_url=V1, api_key="none", max_retries=0)


class Weather(BaseModel):
    city: Literal["Paris", "Oslo"]
    days: Literal[1, 2, 3]


@case("openai: text, schema, streaming")
def _():
    model = outlines.from_openai(client, MODEL)
    includes(model(QUESTION, temperature=0, max_tokens=400), ANSWER)
    Weather.model_validate_json(model(ASK, Weather, max_tokens=400))
    includes("".join(model.stream(QUESTION, temperature=0, max_tokens=400)), ANSWER)


@case("vllm: choice, regex, schema")
def _():
    model = outlines.from_vllm(client, MODEL)
    assert model(ASK, Literal["clear", "cloudy"], max_tokens=400) in ("clear", "cloudy")
    assert len(model(ASK, outlines.types.regex("[ab]{4}"), max_tokens=400)) == 4
    Weather.model_validate_json(model(ASK, Weather, max_tokens=400))


@case("sglang: regex, schema")
def _():
    model = outlines.from_sglang(client, MODEL)
    assert len(model(ASK, outlines.types.regex("[ab]{4}"), max_tokens=400)) == 4
    Weather.model_validate_json(model(ASK, Weather, max_tokens=400))


@case("anthropic, ollama")
def _():
    made = anthropic.Anthropic(base_url=BASE, api_key="none", max_retries=0)
    # It reads the first block alone, which is the thinking of a model that thinks.
    assert outlines.from_anthropic(made, MODEL)(QUESTION, max_tokens=400, thinking={"type": "disabled"})
    Weather.model_validate_json(outlines.from_ollama(ollama.Client(host=BASE), MODEL)(ASK, Weather))


run("outlines")
