"""The library anthropic: messages, tools, thinking, the tool runner."""

import anthropic
from anthropic import Anthropic, AsyncAnthropic, beta_tool

from suite import ANSWER, ASK, BASE, MODEL, QUESTION, SUM, SYSTEM, WEATHER, case, includes, raises, run, valid_sum, \
    valid_weather

client = Anthropic(base_url=BASE, api_key="none", max_retries=0)
messages = [{"role": "user", "content": QUESTION}]
ask = [{"role": "user", "content": ASK}]
tool = {"name": "get_weather", "description": "The weather of a city.", "input_schema": WEATHER}


def params(**more):
    return {"model": MODEL, "messages": messages, "max_tokens": 400, "extra_body": {"temperature": 0}, **more}


def create(**more):
    return client.messages.create(**params(**more))


def text(m):
    return "".join(b.text for b in m.content if b.type == "text")


def read(m):
    return m.usage.input_tokens + m.usage.cache_read_input_tokens


def call(m):
    return next(b for b in m.content if b.type == "tool_use")


@case("models")
def _():
    listed = list(client.models.list())
    assert [m.id for m in listed] == [MODEL] and listed[0].display_name and listed[0].created_at
    assert client.models.retrieve(MODEL).type == "model"


@case("messages; system; cache_control")
def _():
    got = create(system=[{"type": "text", "text": SYSTEM, "cache_control": {"type": "ephemeral"}}])
    includes(text(got), ANSWER)
    assert got.stop_reason == "end_turn" and got.usage.output_tokens > 0


@case("streaming; async")
async def _():
    with client.messages.stream(**params()) as stream:
        shown = "".join(stream.text_stream)
        assert text(stream.get_final_message()) == shown
    includes(shown, ANSWER)
    async with AsyncAnthropic(base_url=BASE, api_key="none") as c:
        includes(text(await c.messages.create(**params())), ANSWER)


@case("tools: any, named, none, streamed")
def _():
    for choice in ({"type": "any"}, {"type": "tool", "name": "get_weather"}):
        got = create(messages=ask, tools=[tool], tool_choice={**choice, "disable_parallel_tool_use": True})
        assert got.stop_reason == "tool_use"
        valid_weather(call(got).input)
    assert create(messages=ask, tools=[tool], tool_choice={"type": "none"}, max_tokens=30).stop_reason != "tool_use"
    with client.messages.stream(**params(messages=ask, tools=[tool], tool_choice={
            "type": "any", "disable_parallel_tool_use": True})) as stream:
        partial = "".join(e.partial_json for e in stream if e.type == "input_json")
        valid_weather(call(stream.get_final_message()).input)
    valid_weather(partial)


@case("tool_runner")
def _():
    given = []

    @beta_tool
    def add(a: int, b: int) -> str:
        """Adds two numbers.

        Args:
            a: The first number.
            b: The second number.
        """
        given.append((a, b))
        return "12"

    runner = client.beta.messages.tool_runner(model=MODEL, max_tokens=200, tools=[add], messages=messages,
                                              tool_choice={"type": "tool", "name": "add"}, max_iterations=2)
    last = None
    for last in runner:
        pass
    assert given and last is not None


@case("thinking: enabled, adaptive, disabled")
def _():
    got = create(thinking={"type": "enabled", "budget_tokens": 1024}, max_tokens=2048)
    assert any(b.type == "thinking" for b in got.content)
    create(thinking={"type": "adaptive"}, max_tokens=1000)
    assert not any(b.type == "thinking" for b in create(thinking={"type": "disabled"}).content)
    assert create(max_tokens=1000).content[0].type == "text"


@case("output_config, stop_sequences, prefill")
def _():
    form = {"format": {"type": "json_schema", "schema": SUM}}
    valid_sum(text(client.messages.create(**params(output_config=form))))
    got = create(stop_sequences=["7"])
    assert text(got).strip() == "5" and got.stop_sequence == "7"
    assert text(create(messages=[*messages, {"role": "assistant", "content": "It is"}], max_tokens=20))


@case("documents of text, search results")
def _():
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "It is cold."}}
    found = {"type": "search_result", "source": "a", "title": "b", "content": [{"type": "text", "text": "It is hot."}]}
    got = create(messages=[{"role": "user", "content": [document, found, {"type": "text", "text": QUESTION}]}])
    assert read(got) > read(create()) + 5


@case("count_tokens, betas")
def _():
    assert client.messages.count_tokens(model=MODEL, messages=messages).input_tokens > 4
    assert client.beta.messages.create(**params(betas=["context-1m-2025-08-07"], max_tokens=20)).content


@case("an image leaves a placeholder")
def _():
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    got = create(messages=[{"role": "user", "content": [image, {"type": "text", "text": QUESTION}]}])
    assert read(got) > read(create())


@case("errors")
def _():
    with raises(anthropic.BadRequestError, "temperature"):
        create(extra_body={"temperature": "hot"})
    with raises(anthropic.NotFoundError, "no batch"):
        client.messages.batches.retrieve("none")


run("anthropic")
