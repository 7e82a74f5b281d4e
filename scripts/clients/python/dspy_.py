"""The library dspy, over chat completions, responses and ollama's API."""

from typing import Literal

import dspy
from pydantic import BaseModel

from suite import ANSWER, BASE, MODEL, QUESTION, V1, case, includes, run

dspy.configure_cache(enable_disk_cache=False, enable_memory_cache=False)


class Weather(BaseModel):
    city: Literal["Paris", "Oslo"]
    days: Literal[1, 2, 3]


def lm(kind="openai", **more):
    base = BASE if kind == "ollama_chat" else V1
    return dspy.LM(f"{kind}/{MODEL}", api_base=base, api_key="none", temperature=0, max_tokens=400, num_retries=0, **more)


for name, make in {"chat": lm, "responses": lambda: lm(model_type="responses"),
                   "ollama_chat": lambda: lm("ollama_chat")}.items():
    @case(f"{name}: call")
    def _(make=make):
        got = make()(QUESTION)[0]
        includes(got["text"] if isinstance(got, dict) else got, ANSWER)


@case("response_format")
def _():
    got = lm()("What is the weather in Paris?", response_format=Weather)[0]
    Weather.model_validate_json(got["text"] if isinstance(got, dict) else got)


@case("Predict: what the model writes is asked for twice, then told")
def _():
    with dspy.context(lm=lm()):
        try:
            assert dspy.Predict("question -> answer")(question=QUESTION).answer
        except dspy.utils.exceptions.AdapterParseError:
            pass  # the built-in model does not know the form of dspy's prompts


run("dspy")
