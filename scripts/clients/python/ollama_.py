"""The library ollama."""

import datetime
import hashlib
import http.server
import json
import pathlib
import re
import threading
import time

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


class Registry(http.server.BaseHTTPRequestHandler):
    """A registry with one model: the manifest, and blobs by range."""

    blobs = {}
    manifest = b""

    def do_GET(self):
        name = self.path.rsplit("/", 1)[1]
        body = self.manifest if "/manifests/" in self.path else self.blobs.get(name)
        if body is None:
            return self.send_error(404)
        first, last = 0, len(body) - 1
        asked = self.headers.get("Range")
        if asked:
            first, last = (int(n) if n else len(body) - 1 for n in asked.removeprefix("bytes=").split("-"))
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(body)}")
        self.send_header("Content-Length", str(last + 1 - first))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body[first:last + 1])

    do_HEAD = do_GET

    def log_message(self, *_):
        pass


@case("pull, load, ps, unload, delete")
def _():
    path = re.search(r"^FROM (.*)$", client.show(MODEL).modelfile, re.M)[1]
    model = pathlib.Path(path).read_bytes()
    digest = "sha256:" + hashlib.sha256(model).hexdigest()
    Registry.blobs[digest] = model
    Registry.manifest = json.dumps({"schemaVersion": 2, "layers": [{
        "mediaType": "application/vnd.ollama.image.model", "digest": digest, "size": len(model)}]}).encode()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        name = f"127.0.0.1:{server.server_port}/tests/pulled:latest"
        steps = list(client.pull(name, stream=True))
        assert steps[-1].status == "success" and any(s.completed == len(model) for s in steps), steps
        server.shutdown()
    assert name in [m.model for m in client.list().models], client.list()

    def expiry():
        return {m.model: m.expires_at for m in client.ps().models}.get(name)

    assert client.generate(name, keep_alive="10m").done_reason == "load"
    left = (expiry() - datetime.datetime.now(datetime.UTC)).total_seconds()
    assert 500 < left <= 601, left
    includes(client.chat(name, messages, options=greedy, keep_alive=-1).message.content, ANSWER)
    assert (expiry() - datetime.datetime.now(datetime.UTC)).days > 300, expiry()
    assert client.generate(name, keep_alive=0).done_reason == "unload"
    end = time.monotonic() + 10
    while expiry() and time.monotonic() < end:
        time.sleep(0.05)
    assert not expiry(), client.ps()
    assert client.delete(name).status == "success"
    assert name not in [m.model for m in client.list().models]


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
