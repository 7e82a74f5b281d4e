"""The library Haystack, over OpenAI's and ollama's APIs."""

from typing import Annotated, Literal

from haystack.components.agents import Agent
from haystack.components.embedders import OpenAITextEmbedder
from haystack.components.generators.chat import OpenAIChatGenerator, OpenAIResponsesChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import create_tool_from_function
from haystack.utils import Secret
from haystack_integrations.components.generators.ollama import OllamaChatGenerator

from suite import ANSWER, ASK, BASE, MODEL, QUESTION, SUM, V1, case, includes, run, valid_sum, valid_weather

key = Secret.from_token("none")
messages = [ChatMessage.from_user(QUESTION)]


def get_weather(city: Annotated[Literal["Paris", "Oslo"], "the city"], days: Annotated[Literal[1, 2, 3], "days"]) -> str:
    """The weather of a city."""
    return "clear"


def chat(**more):
    kwargs = {"temperature": 0, "max_tokens": 400, **more.pop("generation_kwargs", {})}
    return OpenAIChatGenerator(api_key=key, model=MODEL, api_base_url=V1, max_retries=0, generation_kwargs=kwargs, **more)


models = {
    "OpenAIChatGenerator": chat,
    "OpenAIResponsesChatGenerator": lambda **more: OpenAIResponsesChatGenerator(
        api_key=key, model=MODEL, api_base_url=V1, max_retries=0,
        generation_kwargs={"temperature": 0, "max_output_tokens": 400}, **more),
    "OllamaChatGenerator": lambda **more: OllamaChatGenerator(
        model=MODEL, url=BASE, think=True, generation_kwargs={"temperature": 0, "num_predict": 400}, **more),
}

for name, make in models.items():
    @case(f"{name}: run, streamed")
    def _(make=make):
        includes(make().run(messages=messages)["replies"][0].text, ANSWER)
        shown = []
        make(streaming_callback=lambda chunk: shown.append(chunk.content)).run(messages=messages)
        includes("".join(shown), ANSWER)


@case("tools, schema")
def _():
    tool = create_tool_from_function(get_weather)
    got = chat(tools=[tool], generation_kwargs={"tool_choice": "required", "parallel_tool_calls": False}).run(
        messages=[ChatMessage.from_user(ASK)])["replies"][0]
    valid_weather(got.tool_calls[0].arguments)
    form = {"type": "json_schema", "json_schema": {"name": "sum", "strict": True, "schema": SUM}}
    valid_sum(chat(generation_kwargs={"response_format": form}).run(messages=messages)["replies"][0].text)


@case("Agent")
def _():
    agent = Agent(chat_generator=chat(), tools=[create_tool_from_function(get_weather)], max_agent_steps=2)
    assert agent.run(messages=messages)["messages"]


@case("embedder")
def _():
    got = OpenAITextEmbedder(api_key=key, model=MODEL, api_base_url=V1).run(text=QUESTION)
    assert len(got["embedding"]) > 16


run("haystack-ai")
