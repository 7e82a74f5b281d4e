"""The library LlamaIndex, over OpenAI's and ollama's APIs."""

from typing import Literal

from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.ollama import Ollama
from llama_index.llms.openai_like import OpenAILike
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from pydantic import BaseModel

from suite import ANSWER, ASK, BASE, MODEL, QUESTION, SYSTEM, V1, case, includes, run, valid_weather, vectors


class Weather(BaseModel):
    """The weather of a city."""

    city: Literal["Paris", "Oslo"]
    days: Literal[1, 2, 3]


def get_weather(city: Literal["Paris", "Oslo"], days: Literal[1, 2, 3]) -> str:
    """The weather of a city."""
    return "clear"


def like(**more):
    return OpenAILike(**{"model": MODEL, "api_base": V1, "api_key": "none", "is_chat_model": True, "temperature": 0,
                         "is_function_calling_model": True, "max_tokens": 400, "max_retries": 0,
                         "should_use_structured_outputs": True, **more})


models = {"OpenAILike": like,
          "Ollama": lambda: Ollama(model=MODEL, base_url=BASE, temperature=0, request_timeout=60,
                                   additional_kwargs={"num_predict": 400})}

for name, make in models.items():
    @case(f"{name}: complete, chat, stream, achat")
    async def _(make=make):
        messages = [ChatMessage(role="system", content=SYSTEM), ChatMessage(role="user", content=QUESTION)]
        includes(make().complete(QUESTION).text, ANSWER)
        includes(make().chat(messages).message.content, ANSWER)
        last = None
        for last in make().stream_chat(messages):
            pass
        includes(last.message.content, ANSWER)
        includes((await make().achat(messages)).message.content, ANSWER)

    @case(f"{name}: structured, streamed")
    def _(make=make):
        messages = [ChatMessage(role="user", content=ASK)]
        assert isinstance(make().as_structured_llm(Weather).chat(messages).raw, Weather)
        last = None
        for last in make().as_structured_llm(Weather).stream_chat(messages):
            pass
        assert last.raw.city in ("Paris", "Oslo")


@case("tools")
def _():
    tool = FunctionTool.from_defaults(get_weather)
    got = like().chat_with_tools([tool], user_msg=ASK, tool_required=True, allow_parallel_tool_calls=False)
    valid_weather(like().get_tool_calls_from_response(got)[0].tool_kwargs)


@case("completion mode")
def _():
    assert like(is_chat_model=False, max_tokens=8).complete(QUESTION).text


@case("embeddings")
def _():
    model = OpenAILikeEmbedding(model_name=MODEL, api_base=V1, api_key="none")
    vectors(model.get_text_embedding_batch([QUESTION, SYSTEM, QUESTION]))


run("llama-index-core", "llama-index")
