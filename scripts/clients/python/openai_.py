"""The library openai: chat completions, completions, responses, embeddings."""

import json
from typing import Literal, Optional, Union

import openai
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel

from suite import (ANSWER, ASK, MODEL, QUESTION, SUM, SYSTEM, TOOL, V1, WEATHER, case, includes, raises, run, valid_sum,
                   valid_weather, vectors)

client = OpenAI(base_url=V1, api_key="none", max_retries=0)
messages = [{"role": "user", "content": QUESTION}]
ask = [{"role": "user", "content": ASK}]
rtool = {"type": "function", "name": "get_weather", "description": "The weather of a city.", "parameters": WEATHER,
         "strict": True}


def chat(**more):
    return client.chat.completions.create(
        **{"model": MODEL, "messages": messages, "temperature": 0, "max_tokens": 400, **more})


def respond(**more):
    return client.responses.create(
        **{"model": MODEL, "input": QUESTION, "temperature": 0, "max_output_tokens": 400, **more})


class Weather(BaseModel):
    city: Literal["Paris", "Oslo"]
    days: int


class Row(BaseModel):
    kind: Literal["row"]
    value: Optional[int]


class Table(BaseModel):
    title: Literal["a", "b"]
    first: Union[Row, Weather]


@case("models")
def _():
    assert [m.id for m in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).id == MODEL


@case("chat; usage")
def _():
    got = chat()
    includes(got.choices[0].message.content, ANSWER)
    assert got.usage.total_tokens == got.usage.prompt_tokens + got.usage.completion_tokens > 0


@case("streaming, usage chunk")
def _():
    text, usage, finish = "", None, None
    for chunk in chat(stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            text += choice.delta.content or ""
            finish = choice.finish_reason or finish
    includes(text, ANSWER)
    assert finish == "stop" and usage.completion_tokens > 0


@case("stream helper")
def _():
    with client.chat.completions.stream(model=MODEL, messages=messages, temperature=0, max_tokens=400) as stream:
        kinds = {event.type for event in stream}
        includes(stream.get_final_completion().choices[0].message.content, ANSWER)
    assert {"chunk", "content.delta", "content.done"} <= kinds, kinds


@case("async")
async def _():
    async with AsyncOpenAI(base_url=V1, api_key="none", max_retries=0) as c:
        got = await c.chat.completions.create(model=MODEL, messages=messages, temperature=0, max_tokens=400)
        includes(got.choices[0].message.content, ANSWER)


@case("system and developer messages")
def _():
    for role in ("system", "developer"):
        got = chat(messages=[{"role": role, "content": SYSTEM}, *messages])
        includes(got.choices[0].message.content, ANSWER)
        assert got.usage.prompt_tokens > chat().usage.prompt_tokens


@case("tools: required, named, none, parallel off")
def _():
    for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
        got = chat(messages=ask, tools=[TOOL], tool_choice=choice, parallel_tool_calls=False).choices[0]
        assert got.finish_reason == "tool_calls"
        valid_weather(got.message.tool_calls[0].function.arguments)
    named = {"type": "function", "function": {"name": "get_weather"}}
    assert len(chat(messages=ask, tools=[TOOL], tool_choice=named).choices[0].message.tool_calls) == 1
    assert not chat(messages=ask, tools=[TOOL], tool_choice="none", max_tokens=30).choices[0].message.tool_calls


@case("tools: allowed_tools, custom form")
def _():
    other = {"type": "function", "function": {"name": "other", "parameters": {"type": "object", "properties": {}}}}
    allowed = {"type": "allowed_tools", "allowed_tools": {
        "mode": "required", "tools": [{"type": "function", "function": {"name": "get_weather"}}]}}
    got = chat(messages=ask, tools=[other, TOOL], tool_choice=allowed, parallel_tool_calls=False).choices[0]
    assert [c.function.name for c in got.message.tool_calls] == ["get_weather"]


@case("tools: streamed")
def _():
    name, args, parts = "", "", 0
    for chunk in chat(messages=ask, tools=[TOOL], tool_choice="required", parallel_tool_calls=False, stream=True):
        for choice in chunk.choices:
            for call in choice.delta.tool_calls or []:
                name += call.function.name or ""
                args += call.function.arguments or ""
                parts += 1
    assert name == "get_weather" and parts > 1
    valid_weather(args)


@case("tools: the result in a second turn")
def _():
    call = chat(messages=ask, tools=[TOOL], tool_choice="required", parallel_tool_calls=False).choices[0].message
    turn = chat(messages=[*ask, call, {"role": "tool", "tool_call_id": call.tool_calls[0].id, "content": "clear"}],
                tools=[TOOL], tool_choice="none", max_tokens=60)
    assert turn.choices[0].message.content


@case("parse: nested, union, optional; streamed")
def _():
    parse = client.chat.completions.parse
    for kind in (Weather, Table):
        got = parse(model=MODEL, messages=messages, response_format=kind, max_tokens=400, temperature=0)
        assert isinstance(got.choices[0].message.parsed, kind)
    with client.chat.completions.stream(model=MODEL, messages=messages, response_format=Weather, max_tokens=400,
                                        temperature=0) as s:
        for _ in s:
            pass
        assert isinstance(s.get_final_completion().choices[0].message.parsed, Weather)


@case("pydantic_function_tool")
def _():
    tool = openai.pydantic_function_tool(Weather)
    got = client.chat.completions.parse(model=MODEL, messages=ask, tools=[tool], tool_choice="required",
                                        parallel_tool_calls=False, max_tokens=400, temperature=0)
    assert isinstance(got.choices[0].message.tool_calls[0].function.parsed_arguments, Weather)


@case("json_schema, json_object")
def _():
    form = {"type": "json_schema", "json_schema": {"name": "sum", "strict": True, "schema": SUM}}
    valid_sum(chat(response_format=form).choices[0].message.content)
    got = chat(response_format={"type": "json_object"}).choices[0]
    assert got.message.content.lstrip().startswith("{")


@case("logprobs, n, seed, stop, logit_bias")
def _():
    content = chat(logprobs=True, top_logprobs=3).choices[0].logprobs.content
    assert content and all(len(t.top_logprobs) == 3 for t in content)
    assert [c.index for c in chat(n=3).choices] == [0, 1, 2]
    assert chat(temperature=1, seed=3).choices[0].message.content == chat(temperature=1, seed=3).choices[0].message.content
    assert chat(stop=["7"]).choices[0].message.content.strip() == "5"
    chat(logit_bias={"5": -100}, max_tokens=5)


@case("a form behind an assistant message; with a required call")
def _():
    form = {"type": "json_schema", "json_schema": {"name": "sum", "strict": True, "schema": SUM}}
    valid_sum(chat(messages=[*messages, {"role": "assistant", "content": "It is 5798."}],
                   response_format=form).choices[0].message.content)
    got = chat(messages=ask, tools=[TOOL], tool_choice="required", response_format=form, parallel_tool_calls=False)
    valid_weather(got.choices[0].message.tool_calls[0].function.arguments)


@case("completions: echo, logprobs, list, streaming")
def _():
    got = client.completions.create(model=MODEL, prompt=QUESTION, max_tokens=5, temperature=0, echo=True, logprobs=2)
    assert got.choices[0].text.startswith(QUESTION) and got.choices[0].logprobs.tokens
    assert len(client.completions.create(model=MODEL, prompt=["a", "b"], max_tokens=3).choices) == 2
    plain = client.completions.create(model=MODEL, prompt=QUESTION, max_tokens=8, temperature=0).choices[0].text
    streamed = client.completions.create(model=MODEL, prompt=QUESTION, max_tokens=8, temperature=0, stream=True)
    assert "".join(c.choices[0].text for c in streamed if c.choices) == plain


@case("responses: create, stream, previous_response_id, retrieve, delete")
def _():
    first = respond(instructions=SYSTEM)
    includes(first.output_text, ANSWER)
    text, done = "", None
    for event in respond(stream=True):
        if event.type == "response.output_text.delta":
            text += event.delta
        if event.type == "response.completed":
            done = event.response
    includes(text, ANSWER)
    assert done.status == "completed"
    second = respond(input="Subtract 45 from 1234.", previous_response_id=first.id)
    includes(second.output_text, "1189")
    assert client.responses.retrieve(first.id).id == first.id
    assert list(client.responses.input_items.list(first.id))
    client.responses.delete(first.id)
    with raises(openai.NotFoundError, first.id):
        client.responses.retrieve(first.id)


@case("responses: tools, parse, input_tokens, compact")
def _():
    got = respond(input=ask, tools=[rtool], tool_choice="required", parallel_tool_calls=False)
    call = next(i for i in got.output if i.type == "function_call")
    valid_weather(call.arguments)
    last = respond(input=[*ask, call, {"type": "function_call_output", "call_id": call.call_id, "output": "clear"}],
                   tools=[rtool], tool_choice="none", max_output_tokens=60)
    assert last.output_text
    assert isinstance(client.responses.parse(model=MODEL, input=QUESTION, text_format=Weather,
                                             max_output_tokens=300).output_parsed, Weather)
    assert client.responses.input_tokens.count(model=MODEL, input=QUESTION).input_tokens > 4
    assert client.responses.compact(model=MODEL, input=QUESTION).output


@case("embeddings: base64, float, tokens")
def _():
    got = client.embeddings.create(model=MODEL, input=[QUESTION, SYSTEM, QUESTION])
    vectors([d.embedding for d in got.data])
    vectors([d.embedding for d in client.embeddings.create(model=MODEL, input=[[5, 6, 7], [8], [5, 6, 7]]).data])
    client.embeddings.create(model=MODEL, input=QUESTION, encoding_format="float")


@case("an image leaves a placeholder")
def _():
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    got = chat(messages=[{"role": "user", "content": [{"type": "text", "text": QUESTION}, image]}])
    assert got.usage.prompt_tokens > chat().usage.prompt_tokens


@case("errors; unknown fields")
def _():
    with raises(openai.BadRequestError, "temperature"):
        chat(temperature="hot")
    with raises(openai.NotFoundError, "/v1/vector_stores"):
        client.vector_stores.list()
    raw = client.chat.completions.with_raw_response.create(
        model=MODEL, messages=messages, max_tokens=2, extra_body={"flux_mode": 1})
    assert "flux_mode" in raw.headers["x-uma-ignored"], json.dumps(dict(raw.headers))


run("openai")
