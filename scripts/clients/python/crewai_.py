"""The library crewai, over OpenAI's, vLLM's, ollama's and Anthropic's APIs."""

import os
import tempfile
from typing import Literal

os.environ.update(CREWAI_DISABLE_TELEMETRY="true", OTEL_SDK_DISABLED="true", CREWAI_STORAGE_DIR=tempfile.mkdtemp(),
                  CREWAI_TRACING_ENABLED="false", OPENAI_API_KEY="none", ANTHROPIC_API_KEY="none")

from crewai import LLM, Agent, Crew, Task
from pydantic import BaseModel

from suite import ANSWER, ASK, BASE, MODEL, QUESTION, V1, case, includes, run


class Weather(BaseModel):
    city: Literal["Paris", "Oslo"]
    days: Literal[1, 2, 3]


def make(provider="openai", **more):
    base = BASE if provider in ("anthropic",) else V1
    return LLM(model=f"{provider}/{MODEL}", base_url=base, api_key="none", temperature=0, max_tokens=400, **more)


@case("LLM: call, stream")
def _():
    includes(make().call(QUESTION), ANSWER)
    includes(make(stream=True).call(QUESTION), ANSWER)


@case("LLM: response_format")
def _():
    got = make(response_format=Weather).call(ASK)
    assert isinstance(got, Weather) or Weather.model_validate_json(got)


@case("hosted_vllm")
def _():
    includes(make("hosted_vllm").call(QUESTION), ANSWER)


@case("Crew")
def _():
    agent = Agent(role="calculator", goal="add", backstory="none", llm=make(), verbose=False, max_iter=2)
    task = Task(description=QUESTION, expected_output="a number", agent=agent)
    assert Crew(agents=[agent], tasks=[task], verbose=False).kickoff().raw


run("crewai")
