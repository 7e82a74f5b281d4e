"""The program Open WebUI, with both connections: its own API is asked as its page does."""

import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

from suite import ANSWER, BASE, MODEL, QUESTION, TOOL, V1, case, includes, run

home = tempfile.mkdtemp()
with socket.socket() as s:
    s.bind(("127.0.0.1", 0))
    port = s.getsockname()[1]
url = f"http://127.0.0.1:{port}"
server = subprocess.Popen(
    [pathlib.Path(sys.executable).parent / "open-webui", "serve", "--host", "127.0.0.1", "--port", str(port)],
    cwd=home, stdout=open(pathlib.Path(home, "log"), "w"), stderr=subprocess.STDOUT,
    env={**os.environ, "DATA_DIR": home, "WEBUI_AUTH": "False", "OPENAI_API_BASE_URL": V1, "OPENAI_API_KEY": "none",
         "OLLAMA_BASE_URL": BASE, "ENABLE_OLLAMA_API": "True", "HF_HUB_OFFLINE": "1", "OFFLINE_MODE": "True",
         "RAG_EMBEDDING_ENGINE": "openai", "RAG_OPENAI_API_BASE_URL": V1, "RAG_OPENAI_API_KEY": "none",
         "RAG_EMBEDDING_MODEL": MODEL, "WEBUI_SECRET_KEY": "test", "ANONYMIZED_TELEMETRY": "False",
         "ENABLE_VERSION_UPDATE_CHECK": "False"})
headers = {"Content-Type": "application/json"}


def ask(path, body=None, raw=False):
    request = urllib.request.Request(url + path, headers=headers, data=json.dumps(body).encode() if body else None)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            data = answer.read().decode()
    except urllib.error.HTTPError as e:
        raise AssertionError(f"{path}: {e.code} {e.read()[:300]}") from None
    return data if raw else json.loads(data)


def chat(**more):
    return {"model": MODEL, "messages": [{"role": "user", "content": QUESTION}], "stream": False, "temperature": 0,
            "max_tokens": 400, **more}


@case("starts; sign-up")
def _():
    end = time.monotonic() + 85
    while True:
        try:
            ask("/health")
            break
        except (OSError, AssertionError):
            assert server.poll() is None, pathlib.Path(home, "log").read_text()[-500:]
            assert time.monotonic() < end, "it does not answer"
            time.sleep(0.5)
    headers["Authorization"] = "Bearer " + ask("/api/v1/auths/signin", {"email": "", "password": ""})["token"]


@case("models of both connections")
def _():
    ids = [m["id"] for m in ask("/api/models")["data"]]
    assert any(i.startswith(MODEL) for i in ids), ids
    includes(json.dumps(ask("/ollama/api/tags")), MODEL)
    ask("/ollama/api/version")


@case("chat, streaming, tools")
def _():
    includes(ask("/api/chat/completions", chat())["choices"][0]["message"]["content"], ANSWER)
    text = ask("/api/chat/completions", chat(stream=True), raw=True)
    assert "data:" in text and "[DONE]" in text
    got = ask("/api/chat/completions", chat(tools=[TOOL], max_tokens=100))
    message = got["choices"][0]["message"]
    assert message.get("content") or message.get("reasoning_content") or message.get("tool_calls"), message


@case("ollama: chat, generate, embed")
def _():
    # Open WebUI takes only names of the list, where each has a tag.
    model = ask("/ollama/api/tags")["models"][0]["model"]
    includes(ask("/ollama/api/chat", {"model": model, "messages": [{"role": "user", "content": QUESTION}],
                                      "stream": False, "options": {"temperature": 0}})["message"]["content"], ANSWER)
    assert ask("/ollama/api/embed", {"model": model, "input": [QUESTION]})["embeddings"]


@case("titles, tags, follow-ups")
def _():
    body = {"model": MODEL, "chat_id": "local:1", "messages": [{"role": "user", "content": QUESTION},
                                                                {"role": "assistant", "content": ANSWER}]}
    for task in ("title", "tags", "follow_up"):
        ask(f"/api/v1/tasks/{task}/completions", body)


@case("retrieval: embeddings of a text")
def _():
    got = ask("/api/v1/retrieval/process/text", {"name": "a", "content": "The lighthouse keeper counts planks.",
                                                 "collection_name": "notes"})
    assert got["status"] is True, got
    got = ask("/api/v1/retrieval/query/collection", {"collection_names": ["notes"], "query": "planks", "k": 1})
    includes(json.dumps(got), "lighthouse")


try:
    run("open-webui", exits=False)
finally:
    server.kill()
