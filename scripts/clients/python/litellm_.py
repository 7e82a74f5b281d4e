"""The library litellm: its providers for OpenAI's, vLLM's, ollama's and Anthropic's APIs."""

import litellm
from litellm import Router, acompletion, completion, embedding, responses, text_completion

from suite import ANSWER, ASK, BASE, MODEL, QUESTION, SUM, TOOL, V1, case, includes, raises, run, valid_sum, \
    valid_weather

litellm.suppress_debug_info = True
messages = [{"role": "user", "content": QUESTION}]
providers = {"openai": V1, "hosted_vllm": V1, "llamafile": V1, "lm_studio": V1, "anthropic": BASE, "ollama_chat": BASE,
             "ollama": BASE}


def ask(provider, **more):
    return completion(**{"model": f"{provider}/{MODEL}", "api_base": providers[provider], "api_key": "none",
                         "messages": messages, "temperature": 0, "max_tokens": 400, "num_retries": 0, **more})


for provider in providers:
    @case(f"{provider}: chat, streaming")
    def _(provider=provider):
        includes(ask(provider).choices[0].message.content, ANSWER)
        text = "".join(c.choices[0].delta.content or "" for c in ask(provider, stream=True) if c.choices)
        includes(text, ANSWER)


for provider in ("openai", "hosted_vllm", "anthropic"):
    @case(f"{provider}: tools, schema")
    def _(provider=provider):
        got = ask(provider, messages=[{"role": "user", "content": ASK}], tools=[TOOL], tool_choice="required",
                  parallel_tool_calls=False)
        valid_weather(got.choices[0].message.tool_calls[0].function.arguments)
        form = {"type": "json_schema", "json_schema": {"name": "sum", "strict": True, "schema": SUM}}
        valid_sum(ask(provider, response_format=form).choices[0].message.content)


@case("reasoning")
def _():
    got = ask("hosted_vllm", reasoning_effort="low")
    assert got.choices[0].message.reasoning_content


@case("text_completion, responses, embedding")
def _():
    got = text_completion(model=f"text-completion-openai/{MODEL}", api_base=V1, api_key="none", prompt=QUESTION,
                          max_tokens=8)
    assert got.choices[0].text
    got = responses(model=f"openai/{MODEL}", api_base=V1, api_key="none", input=QUESTION, max_output_tokens=400)
    assert any(item.type == "message" for item in got.output)
    got = embedding(model=f"openai/{MODEL}", api_base=V1, api_key="none", input=[QUESTION])
    assert len(got.data[0]["embedding"]) > 16


@case("Router, acompletion")
async def _():
    router = Router(model_list=[{"model_name": "local", "litellm_params": {
        "model": f"openai/{MODEL}", "api_base": V1, "api_key": "none"}}])
    got = await router.acompletion(model="local", messages=messages, temperature=0, max_tokens=400)
    includes(got.choices[0].message.content, ANSWER)
    got = await acompletion(model=f"openai/{MODEL}", api_base=V1, api_key="none", messages=messages, temperature=0,
                            max_tokens=400)
    includes(got.choices[0].message.content, ANSWER)


@case("errors")
def _():
    with raises(litellm.BadRequestError, "temperature"):
        ask("openai", temperature="hot")


run("litellm")
