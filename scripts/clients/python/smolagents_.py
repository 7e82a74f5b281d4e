"""The library smolagents. The built-in model is no agent: what is shown is that its steps are taken and read."""

from smolagents import OpenAIServerModel, Tool, ToolCallingAgent
from smolagents.models import ChatMessage, MessageRole

from suite import ANSWER, ASK, MODEL, QUESTION, V1, case, includes, run, valid_weather

given = []


class Weather(Tool):
    name = "get_weather"
    description = "The weather of a city."
    inputs = {"city": {"type": "string", "enum": ["Paris", "Oslo"], "description": "the city"},
              "days": {"type": "integer", "minimum": 1, "maximum": 7, "description": "how many"}}
    output_type = "string"

    def forward(self, city: str, days: int) -> str:
        given.append({"city": city, "days": days})
        return "clear"


def model():
    return OpenAIServerModel(MODEL, api_base=V1, api_key="none", temperature=0, max_tokens=400)


@case("model, streaming")
def _():
    messages = [ChatMessage(role=MessageRole.USER, content=[{"type": "text", "text": QUESTION}])]
    includes(model().generate(messages).content, ANSWER)
    includes("".join(d.content or "" for d in model().generate_stream(messages)), ANSWER)


@case("ToolCallingAgent: a step")
def _():
    given.clear()
    agent = ToolCallingAgent(tools=[Weather()], model=model(), max_steps=2, verbosity_level=0)
    agent.run(ASK)
    steps = [s for s in agent.memory.steps if getattr(s, "model_output_message", None)]
    assert steps, "no step got an answer of the model"


@case("tool calls of the model")
def _():
    messages = [ChatMessage(role=MessageRole.USER, content=[{"type": "text", "text": ASK}])]
    got = model().generate(messages, tools_to_call_from=[Weather()], tool_choice="required", parallel_tool_calls=False)
    assert got.tool_calls[0].function.name == "get_weather"
    valid_weather(got.tool_calls[0].function.arguments)


run("smolagents")
