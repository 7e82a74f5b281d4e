"""The library ollama."""

import ollama
from ollama import AsyncClient, Client

from suite import ANSWER, ASK, BASE, MODEL, QUESTION, SUM, SYSTEM, TOOL, case, includes, raises, run, valid_sum, \
    valid_weather, vectors

client = Client(host=BASE)
messages = [{"role": "user", "content": QUESTION}]
greedy = {"temperature": 0, "num_predict": 400}


@case("list, ps, show")
def _():
    listed = client.list().models
    assert listed[0].model == MODEL + ":latest" and listed[0].digest and listed[0].details.format == "gguf"
    assert client.ps().models[0].digest
    assert client.show(MODEL).modelinfo


@case("chat, streaming, async")
async def _():
    includes(client.chat(MODEL, messages, options=greedy).message.content, ANSWER)
    text = "".join(c.message.content for c in client.chat(MODEL, messages, stream=True, options=greedy))
    includes(text, ANSWER)
    includes((await AsyncClient(host=BASE).chat(MODEL, messages, options=greedy)).message.content, ANSWER)


@case("generate: system, suffix, raw, context, streaming")
def _():
    got = client.generate(MODEL, QUESTION, system=SYSTEM, options=greedy)
    includes(got.response, ANSWER)
    client.generate(MODEL, "x", raw=True, options={"num_predict": 4})
    streamed = client.generate(MODEL, QUESTION, system=SYSTEM, options=greedy, stream=True)
    includes("".join(c.response for c in streamed), ANSWER)


@case("think")
def _():
    got = client.chat(MODEL, messages, think=True, options=greedy)
    includes(got.message.thinking, "So ")
    assert not client.chat(MODEL, messages, think=False, options=greedy).message.thinking


@case("tools")
def _():
    got = client.chat(MODEL, [{"role": "user", "content": ASK}], tools=[TOOL], options={**greedy, "num_predict": 60})
    for call in got.message.tool_calls or []:
        valid_weather(dict(call.function.arguments))
    client.chat(MODEL, [{"role": "user", "content": ASK}, {"role": "assistant", "tool_calls": [
        {"function": {"name": "get_weather", "arguments": {"city": "Paris", "days": 1}}}]},
        {"role": "tool", "content": "clear", "tool_name": "get_weather"}], tools=[TOOL], options={"num_predict": 20})


@case("format: json, schema")
def _():
    valid_sum(client.chat(MODEL, messages, format=SUM, options=greedy).message.content)
    assert client.chat(MODEL, messages, format="json", options=greedy).message.content.lstrip().startswith("{")


@case("logprobs")
def _():
    assert client.chat(MODEL, messages, logprobs=True, top_logprobs=2, options=greedy).logprobs


@case("keep_alive, options that are not known")
def _():
    client.chat(MODEL, messages, keep_alive="10m", options={"num_predict": 2})
    client.chat(MODEL, messages, options={"num_predict": 2, "num_ctx": 2048, "logits_all": True, "no_such": 1})


@case("embed, embeddings")
def _():
    vectors(client.embed(MODEL, [QUESTION, SYSTEM, QUESTION]).embeddings)
    assert client.embeddings(MODEL, QUESTION).embedding


@case("an image leaves a placeholder")
def _():
    client.chat(MODEL, [{"role": "user", "content": QUESTION, "images": ["aGVsbG8="]}], options=greedy)


@case("errors")
def _():
    with raises(ollama.ResponseError, "temperature"):
        client.chat(MODEL, messages, options={"temperature": "hot"})


run("ollama")
