"""The libraries langchain, langgraph, langchain-openai, -ollama and -anthropic."""

from typing import Literal

import httpx
from langchain.agents import create_agent
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_ollama import ChatOllama, OllamaEmbeddings
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from langgraph.prebuilt import create_react_agent
from pydantic import BaseModel

from suite import ANSWER, ASK, BASE, MODEL, QUESTION, V1, case, includes, run, valid_weather, vectors, SYSTEM


class Weather(BaseModel):
    """The weather of a city."""

    city: Literal["Paris", "Oslo"]
    days: Literal[1, 2, 3]


@tool
def get_weather(city: Literal["Paris", "Oslo"], days: Literal[1, 2, 3]) -> str:
    """The weather of a city."""
    return "clear"


def chat(**more):
    return ChatOpenAI(**{"model": MODEL, "base_url": V1, "api_key": "none", "temperature": 0, "max_tokens": 400,
                         "max_retries": 0, **more})


# Each case makes its model: the libraries share connections, which belong to one event loop.
models = {
    "ChatOpenAI": chat,
    "ChatOpenAI, responses": lambda: chat(use_responses_api=True),
    "ChatOllama": lambda: ChatOllama(model=MODEL, base_url=BASE, temperature=0, num_predict=400),
    "ChatAnthropic": lambda: ChatAnthropic(model=MODEL, base_url=BASE, api_key="none", max_tokens=400, max_retries=0),
}

for name, make in models.items():
    @case(f"{name}: invoke, stream, batch")
    def _(make=make):
        model = make()
        includes(model.invoke(QUESTION).text, ANSWER)
        includes("".join(c.text for c in model.stream(QUESTION)), ANSWER)
        assert len(model.batch([QUESTION, QUESTION])) == 2

    @case(f"{name}: structured output")
    def _(make=make, name=name):
        model = make()
        methods = ["json_schema"] if name != "ChatAnthropic" else ["json_schema", "function_calling"]
        for method in methods:
            assert isinstance(model.with_structured_output(Weather, method=method).invoke(ASK), Weather)


@case("ainvoke, astream")
async def _():
    async with httpx.AsyncClient() as http:
        model = chat(http_async_client=http)
        includes((await model.ainvoke([("system", SYSTEM), ("user", QUESTION)])).text, ANSWER)
        includes("".join([c.text async for c in model.astream(QUESTION)]), ANSWER)


@case("bind_tools, ToolMessage")
def _():
    bound = chat().bind_tools([get_weather], tool_choice="required", parallel_tool_calls=False)
    got = bound.invoke(ASK)
    valid_weather(got.tool_calls[0]["args"])
    parts = None
    for chunk in bound.stream(ASK):
        parts = chunk if parts is None else parts + chunk
    valid_weather(parts.tool_calls[0]["args"])
    assert chat(max_tokens=60).invoke([HumanMessage(ASK), got, ToolMessage("clear", tool_call_id=got.tool_calls[0]["id"])])


@case("function_calling, strict")
def _():
    assert isinstance(chat().with_structured_output(Weather, method="function_calling").invoke(ASK), Weather)
    assert isinstance(chat().with_structured_output(Weather, strict=True).invoke(ASK), Weather)


@case("stop, logprobs, n, verbosity")
def _():
    assert chat(stop_sequences=["7"]).invoke(QUESTION).text.strip() == "5"
    assert chat(logprobs=True).invoke(QUESTION).response_metadata["logprobs"]["content"]
    assert len(chat(n=2).generate([[HumanMessage(QUESTION)]]).generations[0]) == 2
    includes(chat(verbosity="low").invoke(QUESTION).text, ANSWER)


@case("create_agent: tools, response_format")
def _():
    for form in (ToolStrategy(Weather), ProviderStrategy(Weather)):
        got = create_agent(chat(), tools=[], response_format=form).invoke({"messages": [("user", ASK)]})
        assert isinstance(got["structured_response"], Weather)
    got = create_agent(chat(), tools=[get_weather]).invoke({"messages": [("user", QUESTION)]})
    assert got["messages"][-1].text


@case("create_react_agent with response_format")
def _():
    for model in (chat(), models["ChatOllama"](), models["ChatOpenAI, responses"]()):
        got = create_react_agent(model, [get_weather], response_format=Weather).invoke({"messages": [("user", ASK)]})
        assert isinstance(got["structured_response"], Weather)


@case("embeddings")
def _():
    texts = [QUESTION, "You are a calculator.", QUESTION]
    vectors(OpenAIEmbeddings(model=MODEL, base_url=V1, api_key="none", check_embedding_ctx_length=False).embed_documents(texts))
    vectors(OllamaEmbeddings(model=MODEL, base_url=BASE).embed_documents(texts))


run("langchain")
