"""The library openai-agents, over chat completions and responses."""

from typing import Literal

from agents import (Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, SQLiteSession,
                    function_tool, set_tracing_disabled)
from agents.agent import StopAtTools
from openai import AsyncOpenAI
from pydantic import BaseModel

from suite import ANSWER, ASK, MODEL, QUESTION, V1, case, includes, run, valid_weather

set_tracing_disabled(True)
given = []


class Weather(BaseModel):
    """The weather of a city."""

    city: Literal["Paris", "Oslo"]
    days: Literal[1, 2, 3]


@function_tool
def get_weather(city: Literal["Paris", "Oslo"], days: Literal[1, 2, 3]) -> str:
    """The weather of a city."""
    given.append({"city": city, "days": days})
    return "clear"


def agent(make, **more):
    settings = more.pop("model_settings", ModelSettings(temperature=0, max_tokens=400))
    return Agent(name="a", model=make(MODEL, AsyncOpenAI(base_url=V1, api_key="none", max_retries=0)),
                 model_settings=settings, **more)


for name, make in (("chat", OpenAIChatCompletionsModel), ("responses", OpenAIResponsesModel)):
    @case(f"{name}: run, streamed, session")
    async def _(make=make):
        includes((await Runner.run(agent(make), QUESTION)).final_output, ANSWER)
        streamed = Runner.run_streamed(agent(make), QUESTION)
        async for _ in streamed.stream_events():
            pass
        includes(streamed.final_output, ANSWER)
        session = SQLiteSession("s")
        await Runner.run(agent(make), QUESTION, session=session)
        includes((await Runner.run(agent(make), "Subtract 45 from 1234.", session=session)).final_output, "1189")

    @case(f"{name}: output_type")
    async def _(make=make):
        assert isinstance((await Runner.run(agent(make, output_type=Weather), ASK)).final_output, Weather)

    @case(f"{name}: tools, required and named; with output_type")
    async def _(make=make):
        for choice, kind in (("required", None), ("get_weather", None), ("required", Weather)):
            given.clear()
            settings = ModelSettings(temperature=0, max_tokens=400, tool_choice=choice, verbosity="low")
            await Runner.run(agent(make, tools=[get_weather], output_type=kind, model_settings=settings,
                                   tool_use_behavior=StopAtTools(stop_at_tool_names=["get_weather"])), ASK)
            assert given
            valid_weather(given[0])

    @case(f"{name}: handoff")
    async def _(make=make):
        other = agent(make)
        settings = ModelSettings(temperature=0, max_tokens=400, tool_choice="transfer_to_b")
        other.name = "b"
        got = await Runner.run(agent(make, handoffs=[other], model_settings=settings), QUESTION)
        assert got.last_agent.name == "b" and got.final_output


run("openai-agents")
