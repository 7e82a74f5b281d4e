"""The library guidance: its model for OpenAI's API, and the one for vLLM, which sends Lark grammars."""

from guidance import assistant, gen, json, select, user
from guidance.models import OpenAI
from guidance.models.experimental import VLLMModel

from suite import ASK, MODEL, QUESTION, SUM, V1, case, run, valid_sum


@case("OpenAI: text, json")
def _():
    lm = OpenAI(MODEL, base_url=V1, api_key="none", echo=False)
    with user():
        lm += QUESTION
    with assistant():
        lm += gen(name="text", temperature=0, max_tokens=200)
    assert lm["text"]
    lm = OpenAI(MODEL, base_url=V1, api_key="none", echo=False)
    with user():
        lm += QUESTION
    with assistant():
        lm += json(name="sum", schema=SUM, max_tokens=200)
    valid_sum(lm["sum"])


@case("VLLMModel: select, regex (Lark)")
def _():
    lm = VLLMModel(MODEL, base_url=V1, api_key="none", echo=False)
    with user():
        lm += ASK
    with assistant():
        lm += select(["clear", "cloudy"], name="sky") + " " + gen(name="n", regex="[0-9]{3}")
    assert lm["sky"] in ("clear", "cloudy") and len(lm["n"]) == 3


run("guidance")
