#!/usr/bin/env python3
"""Two daemons behind real routers: who answers, how much of the prompts was cached, what a killed daemon costs.

    scripts/cluster.sh [--only ROUTER-POLICY,…] [--rounds N]

Prints the tables of docs/cluster.md. Needs the standard library alone; the routers are programs of their packages.
"""

import argparse
import collections
import http.client
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

GROUPS = 8
PREFIX_WORDS = 450
WORDS = ("river stone lamp bread winter garden engine letter paper window market silver bridge forest music teacher "
         "island captain candle mirror village harbor copper thunder meadow carpet violin ladder pepper saddle").split()


def free_port(pair=False):
    while True:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        if not pair:
            return port
        with socket.socket() as s:
            try:
                s.bind(("127.0.0.1", port + 1))
                return port
            except OSError:
                pass


def ask(port, method, path, body=None, timeout=120, headers=None):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        c.request(method, path, json.dumps(body) if body is not None else None,
                  {"Content-Type": "application/json", **(headers or {})})
        r = c.getresponse()
        return r.status, r.read()
    finally:
        c.close()


def stream(port, body, headers=None):
    """Answers a streamed chat: usage, gaps between tokens in ms, time to the first token in ms."""
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=180)
    begin = last = time.monotonic()
    first, gaps, usage, text = None, [], None, ""
    try:
        body = {**body, "stream": True, "stream_options": {"include_usage": True}}
        c.request("POST", "/v1/chat/completions", json.dumps(body),
                  {"Content-Type": "application/json", **(headers or {})})
        r = c.getresponse()
        if r.status != 200:
            raise OSError(f"HTTP {r.status}: {r.read()[:300]!r}")
        done = False
        for line in r:
            if not line.startswith(b"data:"):
                continue
            data = line[5:].strip()
            if data == b"[DONE]":
                done = True
                break
            event = json.loads(data)
            if "error" in event:
                raise OSError(json.dumps(event["error"])[:300])
            usage = event.get("usage") or usage
            for choice in event.get("choices", []):
                piece = (choice.get("delta") or {}).get("content")
                if piece:
                    now = time.monotonic()
                    if first is None:
                        first = (now - begin) * 1e3
                    else:
                        gaps.append((now - last) * 1e3)
                    last, text = now, text + piece
        if not done or usage is None:
            raise OSError("the stream ended early")
        return usage, gaps, first or 0.0, text
    finally:
        c.close()


class Process:
    def __init__(self, name, args, folder, env=None):
        self.name = name
        self.log = open(folder / f"{name}.log", "ab")
        self.args, self.env = [str(a) for a in args], env
        self.start()

    def start(self):
        self.p = subprocess.Popen(self.args, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL,
                                  env={**os.environ, **(self.env or {})}, start_new_session=True)

    def stop(self, how=signal.SIGTERM):
        if self.p.poll() is None:
            os.killpg(self.p.pid, how)
            try:
                self.p.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(self.p.pid, signal.SIGKILL)
                self.p.wait()


class Cluster:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.ports = [free_port(), free_port()]
        self.events = [free_port(True), free_port(True)]
        self.daemons = []

    def url(self, i):
        return f"http://127.0.0.1:{self.ports[i]}"

    def command(self, i):
        return [self.args.daemon, "--model", self.args.model, "--socket", self.folder / f"uma{i}.sock", "--listen",
                f"127.0.0.1:{self.ports[i]}", "--kv-events", f"tcp://127.0.0.1:{self.events[i]}", "--ctx-size",
                self.args.context, "--parallel", 4, "--threads", 1, "--cache-ram", self.args.cache_ram, "--config", "",
                *(["--cache-dir", self.folder / f"cache{i}"] if self.args.cache_dir else [])]

    def start(self):
        for i in range(2):
            (self.folder / f"cache{i}").mkdir(0o700, exist_ok=True)
            self.daemons.append(Process(f"daemon{i}", self.command(i), self.folder))
        for i in range(2):
            self.await_daemon(i)

    def await_daemon(self, i):
        limit = time.monotonic() + 240
        while time.monotonic() < limit:
            if self.daemons[i].p.poll() is not None:
                break
            try:
                if ask(self.ports[i], "GET", "/health", timeout=5)[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(0.2)
        sys.exit(f"daemon {i} is not ready: {self.folder}/daemon{i}.log")

    def fresh(self):
        """Empties both caches: the daemons are started again."""
        self.stop()
        for i in range(2):
            shutil.rmtree(self.folder / f"cache{i}", ignore_errors=True)
        self.daemons = []
        self.start()

    def stop(self):
        for d in self.daemons:
            d.stop()


def router(c, name, policy):
    """The process of a router before both daemons, and its port."""
    port, prom = free_port(), free_port()
    urls = [c.url(0), c.url(1)]
    bin_ = c.args.venvs
    model = c.args.name
    if name == "vllm":
        args = [bin_ / "vllm-router/bin/vllm-router", "--host", "127.0.0.1", "--port", port, "--prometheus-port", prom,
                "--policy", policy, "--worker-urls", *urls]
        if policy == "kv_aware":
            for i in range(2):
                args += ["--kv-event-source", f"{urls[i]}=tcp://127.0.0.1:{c.events[i]}", "--kv-event-replay-source",
                         f"{urls[i]}=tcp://127.0.0.1:{c.events[i] + 1}"]
            args += ["--kv-event-block-size", 16, "--kv-event-model", model]
    elif name == "sglang":
        args = [bin_ / "sglang-router/bin/python", "-m", "sglang_router.launch_router", "--host", "127.0.0.1", "--port",
                port, "--prometheus-port", prom, "--policy", policy, "--worker-urls", *urls]
    elif name == "smg":
        args = [bin_ / "smg/bin/smg", "launch", "--host", "127.0.0.1", "--port", port, "--prometheus-port", prom,
                "--policy", policy, "--worker-urls", *urls]
    else:
        config = c.folder / "litellm.yaml"
        config.write_text(json.dumps({"model_list": [
            {"model_name": model, "litellm_params": {"model": f"openai/{model}", "api_base": u + "/v1", "api_key": "none"}}
            for u in urls], "general_settings": {"master_key": "sk-cluster-4d1e9a7c3b"}}))
        args = [bin_ / "litellm/bin/litellm", "--config", config, "--host", "127.0.0.1", "--port", port]
    p = Process(f"{name}-{policy}", args, c.folder)
    headers = {"Authorization": "Bearer sk-cluster-4d1e9a7c3b"} if name == "litellm" else {}
    limit = time.monotonic() + 180
    body = {"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    while time.monotonic() < limit and p.p.poll() is None:
        try:
            if ask(port, "POST", "/v1/chat/completions", body, headers=headers)[0] == 200:
                return p, port, headers
        except OSError:
            pass
        time.sleep(0.5)
    p.stop()
    sys.exit(f"{name} with {policy} does not answer: {c.folder}/{name}-{policy}.log")


def prefix(group):
    rng = random.Random(group)
    return f"Group {group}. " + " ".join(rng.choice(WORDS) for _ in range(PREFIX_WORDS)) + "."


def prompts(rounds, seed):
    """Requests in random order; the first of each group are spread over the first round."""
    rng, out = random.Random(seed), []
    for r in range(rounds):
        groups = list(range(GROUPS))
        rng.shuffle(groups)
        out += [(g, r) for g in groups]
    return out


def body_of(c, g, r):
    return {"model": c.args.name, "temperature": 0, "max_tokens": 12, "messages": [
        {"role": "system", "content": prefix(g)}, {"role": "user", "content": f"Question {r}: say {WORDS[(g + r) % 28]}."}]}


def load(c, port, headers, rounds, workers=4, kill_at=None):
    """Sends the load; workers send at once. Returns figures."""
    queue, lock = collections.deque(prompts(rounds, 1)), threading.Lock()
    total = cached = sent = 0
    errors, gaps, firsts = [], [], []

    def work():
        nonlocal total, cached, sent
        while True:
            with lock:
                if not queue:
                    return
                g, r = queue.popleft()
                sent += 1
                if kill_at is not None and sent == kill_at:
                    c.daemons[1].stop(signal.SIGKILL)
            try:
                usage, gap, first, _ = stream(port, body_of(c, g, r), headers)
            except (OSError, ValueError, http.client.HTTPException) as e:
                with lock:
                    errors.append(str(e)[:200])
                continue
            with lock:
                total += usage["prompt_tokens"]
                cached += (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
                gaps.extend(gap)
                firsts.append(first)

    threads = [threading.Thread(target=work) for _ in range(workers)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    gaps.sort()
    return {"requests": sent, "errors": errors, "prompt": total, "cached": cached, "share": cached / max(total, 1),
            "itl50": statistics.median(gaps) if gaps else 0, "itl95": gaps[int(len(gaps) * .95)] if gaps else 0,
            "ttft50": statistics.median(firsts) if firsts else 0}


def bound(c, rounds):
    """The share of cached tokens if every request finds all that an earlier one has computed on one daemon."""
    shared = total = 0
    for g in range(GROUPS):
        seen = None
        for r in range(rounds):
            b = body_of(c, g, r)
            status, answer = ask(c.ports[0], "POST", "/tokenize", {"messages": b["messages"]})
            tokens = json.loads(answer)["tokens"]
            total += len(tokens)
            if seen is not None:
                n = 0
                while n < len(tokens) - 1 and n < len(seen) and tokens[n] == seen[n]:
                    n += 1
                shared += n
            seen = tokens
    return shared / total


TOOL = {"type": "function", "function": {"name": "add", "description": "adds two numbers", "parameters": {
    "type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}}}


def forms(c, name, policy):
    """Chat, tools, stream, completions and embeddings through a router."""
    p, port, headers = router(c, name, policy)
    out = {}
    try:
        base = {"model": c.args.name, "temperature": 0, "max_tokens": 48,
                "messages": [{"role": "user", "content": "Add 2 and 3."}]}

        def check(what, path, body, good):
            try:
                status, answer = ask(port, "POST", path, body, headers=headers)
                ok = status == 200 and good(json.loads(answer))
                out[what] = "works" if ok else f"HTTP {status}: {answer[:160]!r}"
            except (OSError, KeyError, ValueError, IndexError, TypeError) as e:
                out[what] = f"failed: {e!r}"[:160]

        check("chat", "/v1/chat/completions", base, lambda a: bool(a["choices"][0]["message"]["content"]))
        check("tools", "/v1/chat/completions", {**base, "tools": [TOOL], "tool_choice": "required"},
              lambda a: a["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "add")
        try:
            out["stream"] = "works" if stream(port, base, headers)[3] else "no text"
        except OSError as e:
            out["stream"] = str(e)[:160]
        check("completions", "/v1/completions", {"model": c.args.name, "prompt": "Once", "max_tokens": 8},
              lambda a: "text" in a["choices"][0])
        check("embeddings", "/v1/embeddings", {"model": c.args.name, "input": "hello"},
              lambda a: len(a["data"][0]["embedding"]) > 0)
    finally:
        p.stop()
    return out


def main():
    parse = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parse.add_argument("--daemon", required=True, type=pathlib.Path)
    parse.add_argument("--model", required=True)
    parse.add_argument("--venvs", required=True, type=pathlib.Path)
    parse.add_argument("--only", default="", help="runs such as vllm-kv_aware, and forms, kill, restart")
    parse.add_argument("--rounds", type=int, default=5, help="requests of each group")
    parse.add_argument("--context", type=int, default=4096)
    parse.add_argument("--cache-ram", default="0")
    parse.add_argument("--keep", type=pathlib.Path, help="folder of logs that stays")
    args = parse.parse_args()
    args.cache_dir, args.name = False, ""
    folder = args.keep or pathlib.Path(tempfile.mkdtemp(prefix="uma-cluster-"))
    folder.mkdir(exist_ok=True)
    only = set(filter(None, args.only.split(",")))
    c = Cluster(args, folder)
    try:
        run(c, only)
    finally:
        c.stop()
        if not args.keep:
            shutil.rmtree(folder, ignore_errors=True)


RUNS = [("vllm", "round_robin"), ("vllm", "cache_aware"), ("vllm", "kv_aware"), ("smg", "round_robin"),
        ("smg", "cache_aware")]


def row(name, f, best):
    print(f"| {name} | {f['share']:.1%} | {f['share'] / best:.0%} | {f['itl50']:.0f} / {f['itl95']:.0f} | "
          f"{f['ttft50']:.0f} | {len(f['errors'])} |", flush=True)
    for e in f["errors"][:2]:
        print(f"    {e}", flush=True)


def run(c, only):
    c.start()
    c.args.name = json.loads(ask(c.ports[0], "GET", "/v1/models")[1])["data"][0]["id"]
    rounds = c.args.rounds
    best = bound(c, rounds)
    wanted = lambda name: not only or name in only
    if wanted("forms"):
        for name in ("smg", "sglang", "vllm", "litellm"):
            for what, result in forms(c, name, "round_robin").items():
                print(f"{name}: {what}: {result}", flush=True)
    print(f"bound: {best:.1%} of the prompt tokens\n\n| router, policy | cached | of the bound | ITL p50 / p95, ms | "
          "TTFT p50, ms | errors |\n|---|---|---|---|---|---|", flush=True)
    for name, policy in RUNS:
        if not wanted(f"{name}-{policy}"):
            continue
        c.fresh()
        p, port, headers = router(c, name, policy)
        try:
            row(f"{name}, {policy}", load(c, port, headers, rounds), best)
        finally:
            p.stop()
    if wanted("kill"):
        c.fresh()
        p, port, headers = router(c, "vllm", "kv_aware")
        try:
            row("vllm, kv_aware, one daemon killed", load(c, port, headers, rounds, kill_at=GROUPS * rounds // 2), best)
        finally:
            p.stop()
    if wanted("restart"):
        c.args.cache_dir, c.args.cache_ram = True, "256MiB"
        c.fresh()
        p, port, headers = router(c, "vllm", "kv_aware")
        try:
            load(c, port, headers, 2)
            for i in range(2):
                c.daemons[i].stop()
                c.daemons[i].start()
            for i in range(2):
                c.await_daemon(i)
            time.sleep(15)  # health checks of the router
            row("vllm, kv_aware, both daemons restarted", load(c, port, headers, 3), best)
        finally:
            p.stop()


if __name__ == "__main__":
    main()
