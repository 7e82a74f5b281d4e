"""The library pydantic-ai: agents over OpenAI's, Anthropic's and ollama's APIs."""

from typing import Literal

from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, PromptedOutput, ToolOutput
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.ollama import OllamaModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.ollama import OllamaProvider
from pydantic_ai.providers.openai import OpenAIProvider

from suite import ANSWER, ASK, BASE, MODEL, QUESTION, V1, case, includes, run


class Weather(BaseModel):
    """The weather of a city."""

    city: Literal["Paris", "Oslo"]
    days: Literal[1, 2, 3]


def openai_provider():
    return OpenAIProvider(openai_client=AsyncOpenAI(base_url=V1, api_key="none", max_retries=0))


models = {
    "chat": lambda: OpenAIChatModel(MODEL, provider=openai_provider()),
    "responses": lambda: OpenAIResponsesModel(MODEL, provider=openai_provider()),
    "anthropic": lambda: AnthropicModel(MODEL, provider=AnthropicProvider(
        anthropic_client=AsyncAnthropic(base_url=BASE, api_key="none", max_retries=0))),
    "ollama": lambda: OllamaModel(MODEL, provider=OllamaProvider(base_url=V1)),
}

for name, make in models.items():
    @case(f"{name}: run, stream")
    async def _(make=make):
        agent = Agent(make(), model_settings={"max_tokens": 400})
        includes((await agent.run(QUESTION)).output, ANSWER)
        async with agent.run_stream(QUESTION) as result:
            includes("".join([text async for text in result.stream_text(delta=True)]), ANSWER)

    # Without max_tokens: a call that repeats ends the answer.
    @case(f"{name}: tool output without a limit")
    async def _(make=make):
        got = await Agent(make(), output_type=ToolOutput(Weather), retries=0).run(ASK)
        assert isinstance(got.output, Weather)


@case("chat: native, prompted and union output")
async def _():
    got = await Agent(models["chat"](), output_type=NativeOutput(Weather), model_settings={"max_tokens": 400}).run(ASK)
    assert isinstance(got.output, Weather)
    settings = {"max_tokens": 200, "extra_body": {"response_format": {
        "type": "json_schema", "json_schema": {"name": "w", "schema": Weather.model_json_schema()}}}}
    got = await Agent(models["chat"](), output_type=PromptedOutput(Weather), model_settings=settings).run(ASK)
    assert isinstance(got.output, Weather)
    got = await Agent(models["chat"](), output_type=[ToolOutput(Weather), ToolOutput(int)], retries=0,
                      model_settings={"max_tokens": 400}).run(ASK)
    assert isinstance(got.output, (Weather, int))


@case("responses: count_tokens; history")
async def _():
    agent = Agent(models["responses"](), model_settings={"max_tokens": 400})
    first = await agent.run(QUESTION)
    second = await agent.run("Subtract 45 from 1234.", message_history=first.all_messages())
    includes(second.output, "1189")
    assert first.usage.input_tokens > 4


run("pydantic-ai-slim", "pydantic-ai")
