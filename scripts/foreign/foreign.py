#!/usr/bin/env python3
"""Drives servers with the load generators of others and prints one table from their reports.

    foreign.py --server NAME=PROGRAM … --model NAME=FILE=TOKENIZER … --venvs FOLDER [--out FOLDER] [--quick]

Each load runs against each server in turn; the report of each tool stays in OUT/MODEL/ROUND/LOAD/SERVER. The table has
the median and the smallest and largest value of all rounds in OUT. The figures are the tools' own: the time to the first
token and between tokens in ms, and the output tokens per second, as each of them defines these. Needs the standard
library alone; the tools are programs of their packages.
"""

import argparse
import http.client
import json
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import time


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def ask(port, path, timeout=10):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
    try:
        c.request("GET", path)
        r = c.getresponse()
        return r.status, r.read()
    finally:
        c.close()


def end(p):
    """Ends a tool with the processes that it has started, which outlive it where it is only terminated."""
    try:
        os.killpg(p.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    p.wait()


class Server:
    """A running server; a with statement stops it."""

    def __init__(self, args, kind, program, model, folder):
        self.port = free_port()
        common = ["-m", model, "-t", args.threads]
        if kind == "llama-server":
            command = [program, *common, "--host", "127.0.0.1", "--port", self.port, "-c", args.context, "-np",
                       args.parallel, "-kvu"]
        elif kind == "ik_llama.cpp":
            # It divides the context among its slots, which would refuse the long prompts. Its flash attention ends the
            # process with 16 streams (GGML_ASSERT(S > 0) of iqk_fa_templates.h, version 0.1.5).
            command = [program, *common, "--host", "127.0.0.1", "--port", self.port, "-c", 4 * args.context, "-np",
                       args.parallel, "-fa", "off"]
        else:
            command = [program, *common, "--socket", folder / "uma.sock", "--listen", f"127.0.0.1:{self.port}",
                       "--config", "", "--ctx-size", args.context, "--parallel", args.parallel]
        self.log = open(folder / "server.log", "wb")
        self.p = subprocess.Popen([str(a) for a in command], stdout=self.log, stderr=self.log,
                                  stdin=subprocess.DEVNULL, cwd=folder)  # ik_llama.cpp's leaves a file there
        limit = time.monotonic() + 180
        while time.monotonic() < limit and self.p.poll() is None:
            try:
                if ask(self.port, "/health")[0] == 200:
                    self.name = json.loads(ask(self.port, "/v1/models")[1])["data"][0]["id"]
                    return
            except OSError:
                pass
            time.sleep(0.2)
        self.stop()
        sys.exit(f"{kind} is not ready: {folder}/server.log")

    def stop(self):
        if self.p.poll() is None:
            self.p.terminate()
            try:
                self.p.wait(20)
            except subprocess.TimeoutExpired:
                self.p.kill()
                self.p.wait()
        self.log.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.stop()


class Tools:
    """Commands of the tools against one server. Each returns what figures reads from its report."""

    def __init__(self, args, server, tokenizer, folder):
        self.args, self.server, self.tokenizer, self.folder = args, server, tokenizer, folder
        self.url = f"http://127.0.0.1:{server.port}"

    def start(self, tool, program, *options, **env):
        log = open(self.folder / f"{tool}.log", "wb")
        command = [str(a) for a in (self.args.venvs / tool / "bin" / program, *options)]
        return subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.folder,
                                env={**os.environ, **env}, start_new_session=True)

    def finish(self, p, tool):
        try:
            code = p.wait(20 * self.args.seconds + 300)
        except subprocess.TimeoutExpired:
            code = "no end"
        finally:
            end(p)
        if code != 0:
            raise OSError(f"{tool} ended with {code}: {self.folder}/{tool}.log")

    def guidellm(self, kind, rate, prompt, output, requests=0):
        """One worker process: ten of them, its default, take the processors from the server. The load ends by its
        requests: guidellm counts the time in which its processes start as time of the load."""
        requests = requests or max(int(self.args.seconds * rate), 4)
        p = self.start("guidellm", "guidellm", "benchmark", "run", "--target", self.url, "--processor", self.tokenizer,
                       "--data", f"prompt_tokens={prompt},output_tokens={output}", "--rate-type", kind, "--rate", rate,
                       "--max-requests", requests, "--max-seconds", 8 * self.args.seconds + 60, "--disable-progress",
                       "--disable-console-outputs", "--random-seed", 1,
                       "--output-path", self.folder / "guidellm.json", GUIDELLM__MAX_WORKER_PROCESSES="1")
        self.finish(p, "guidellm")
        b = json.loads((self.folder / "guidellm.json").read_text())["benchmarks"][0]
        m = b["metrics"]
        get = lambda name, which: m[name]["successful"]["percentiles"][which]
        total = m["output_token_count"]["successful"]["total_sum"]
        return {"ttft50": get("time_to_first_token_ms", "p50"), "ttft95": get("time_to_first_token_ms", "p95"),
                "itl50": get("inter_token_latency_ms", "p50"), "itl95": get("inter_token_latency_ms", "p95"),
                "rate": total / max(b["duration"], 1e-9), "done": b["request_totals"]["successful"],
                "failed": b["request_totals"]["errored"]}

    def inference_perf_start(self, kind, rate, groups, each, prefix, question, output, seconds):
        config = {
            "api": {"type": "chat", "streaming": True},
            "data": {"type": "shared_prefix", "shared_prefix": {
                "num_groups": groups, "num_prompts_per_group": each, "system_prompt_len": prefix,
                "question_len": question, "output_len": output, "seed": 1}},
            "load": {"type": kind, "interval": 1, "num_workers": 1, "stages": [{"rate": rate, "duration": seconds}]},
            "server": {"type": "vllm", "model_name": self.server.name, "base_url": self.url, "ignore_eos": True},
            "tokenizer": {"pretrained_model_name_or_path": str(self.tokenizer)},
            "report": {"request_lifecycle": {"summary": True, "per_stage": True, "per_request": False}},
            "storage": {"local_storage": {"path": str(self.folder / "inference-perf")}},
        }
        (self.folder / "inference-perf.yml").write_text(json.dumps(config))  # JSON is YAML
        return self.start("inference-perf", "inference-perf", "-c", self.folder / "inference-perf.yml")

    def inference_perf(self, *load):
        self.finish(self.inference_perf_start(*load), "inference-perf")
        s = json.loads((self.folder / "inference-perf/summary_lifecycle_metrics.json").read_text())
        ok = s["successes"]
        get = lambda name, which: ok["latency"][name][which] * 1e3
        return {"ttft50": get("time_to_first_token", "median"), "ttft95": get("time_to_first_token", "p95"),
                "itl50": get("inter_token_latency", "median"), "itl95": get("inter_token_latency", "p95"),
                "rate": ok["throughput"]["output_tokens_per_sec"], "done": ok["count"],
                "failed": s.get("failures", {}).get("count", 0)}

    def aiperf(self, sessions, turns, prompt, output, at_once):
        """Sessions of agents: each turn has the history, a tool's result is the prompt, the answers are short."""
        out = self.folder / "aiperf"
        p = self.start("aiperf", "aiperf", "profile", "--model", self.server.name, "--url", self.url, "--endpoint-type",
                       "chat", "--streaming", "--tokenizer", self.tokenizer, "--conversation-num", sessions,
                       "--conversation-turn-mean", turns, "--conversation-turn-stddev", 1,
                       "--conversation-turn-delay-mean", 500, "--conversation-turn-delay-stddev", 200,
                       "--synthetic-input-tokens-mean", prompt, "--synthetic-input-tokens-stddev", prompt // 2,
                       "--output-tokens-mean", output, "--output-tokens-stddev", 0, "--extra-inputs", "ignore_eos:true",
                       "--concurrency", at_once, "--random-seed", 1, "--workers-max", 1, "--artifact-dir", out, "--ui",
                       "none", HF_HUB_OFFLINE="",
                       TRANSFORMERS_OFFLINE="")  # its offline mode looks for names of the hub alone
        self.finish(p, "aiperf")
        report = json.loads(next(out.rglob("profile_export_aiperf.json")).read_text())
        get = lambda name, which: report[name][which]
        return {"ttft50": get("time_to_first_token", "p50"), "ttft95": get("time_to_first_token", "p95"),
                "itl50": get("inter_token_latency", "p50"), "itl95": get("inter_token_latency", "p95"),
                "rate": get("output_token_throughput", "avg"), "done": int(get("request_count", "avg")),
                "failed": int(report.get("error_request_count", {}).get("avg", 0))}


def constant(t):
    return t.guidellm("constant", t.args.rate, 128, 64)


def poisson(t):
    return t.guidellm("poisson", t.args.rate, 128, 64)


def streams(t):
    return t.guidellm("concurrent", 16, 64, 128, 16 if t.args.quick else t.args.streams)


def shared(t):
    s = t.args.seconds
    return t.inference_perf("poisson", t.args.rate, 4, max(int(s * t.args.rate) // 4 + 1, 2), 1024, 32, 32, s)


def storm(t):
    """Chats by guidellm while inference-perf sends prompts of 1,500 tokens that share nothing; the chats' figures."""
    s = t.args.seconds
    n = max(int((s + 30) * t.args.storm), 2)
    prompts = t.inference_perf_start("constant", t.args.storm, n, 1, 1500, 16, 4, s + 30)
    try:
        time.sleep(15)  # inference-perf makes its prompts first
        return t.guidellm("constant", t.args.rate, 32, 64)
    finally:
        end(prompts)


def agents(t):
    return t.aiperf(t.args.sessions, 6, 200, 32, 4)


LOADS = {"constant": (constant, "guidellm"), "poisson": (poisson, "guidellm"), "streams": (streams, "guidellm"),
         "shared": (shared, "inference-perf"), "storm": (storm, "inference-perf"), "agents": (agents, "aiperf")}


def measure(args, load, name, program, model, file, tokenizer, round_):
    """Runs a load against a server and writes its figures beside the tool's report; False if that failed."""
    run, tool = LOADS[load]
    if not (args.venvs / tool / "ready").exists():
        print(f"{load}: {tool} is not installed", file=sys.stderr)
        return True
    folder = args.out / model / str(round_) / load / name
    folder.mkdir(parents=True, exist_ok=True)
    with Server(args, name, pathlib.Path(program).resolve(), pathlib.Path(file).resolve(), folder) as s:
        try:
            f = run(Tools(args, s, pathlib.Path(tokenizer).resolve(), folder))
            if f["done"] == 0:
                raise ValueError("no request has ended")
        except (OSError, KeyError, ValueError, StopIteration) as e:
            print(f"{model}, {load}, {name}: {e!r}", file=sys.stderr, flush=True)
            return False
    f["load"] = os.getloadavg()[0]
    (folder / "figures.json").write_text(json.dumps(f))
    print(f"{model}, round {round_}, {load}, {name}: {f}", file=sys.stderr, flush=True)
    return True


def table(args, servers, models):
    print("| model | load (tool) | server | TTFT p50, ms | TTFT p95, ms | ITL p50, ms | ITL p95, ms | output tokens/s | "
          "rounds | requests, failed | load average |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for model, _, _ in models:
        for load, (_, tool) in LOADS.items():
            for name, _ in servers:
                files = sorted((args.out / model).glob(f"*/{load}/{name}/figures.json"))
                if not files:
                    continue
                rounds = [json.loads(f.read_text()) for f in files]
                cells = [model, f"{load} ({tool})", name]
                for key, digits in ("ttft50", 0), ("ttft95", 0), ("itl50", 1), ("itl95", 1), ("rate", 1):
                    v = [r[key] for r in rounds]
                    cells.append(f"{statistics.median(v):.{digits}f} ({min(v):.{digits}f} … {max(v):.{digits}f})")
                loads = [r["load"] for r in rounds]
                cells += [len(rounds), f"{sum(r['done'] for r in rounds)}, {sum(r['failed'] for r in rounds)}",
                          f"{min(loads):.1f} … {max(loads):.1f}"]
                print("| " + " | ".join(str(c) for c in cells) + " |")


def pairs(values, n):
    out = [tuple(v.split("=", n - 1)) for v in values]
    if any(len(p) != n for p in out):
        sys.exit("--server takes NAME=PROGRAM, --model NAME=FILE=TOKENIZER")
    return out


def main():
    parse = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parse.add_argument("--server", action="append", required=True, help="NAME=PROGRAM, in the order of their turns")
    parse.add_argument("--model", action="append", required=True, help="NAME=FILE=TOKENIZER")
    parse.add_argument("--venvs", type=pathlib.Path, required=True)
    parse.add_argument("--out", type=pathlib.Path, default="bench-out/foreign")
    parse.add_argument("--only", default="", help="loads, by commas: " + ", ".join(LOADS))
    parse.add_argument("--rounds", type=int, default=1)
    parse.add_argument("--first", type=int, default=1, help="number of the first round, to add to those in OUT")
    parse.add_argument("--seconds", type=int, default=45, help="length of a load")
    parse.add_argument("--rate", type=float, default=1.0, help="requests per second")
    parse.add_argument("--storm", type=float, default=0.5, help="long prompts per second of the storm")
    parse.add_argument("--streams", type=int, default=64, help="requests of the 16 streams")
    parse.add_argument("--sessions", type=int, default=12, help="sessions of agents")
    parse.add_argument("--threads", type=int, default=os.cpu_count())
    parse.add_argument("--parallel", type=int, default=16)
    parse.add_argument("--context", type=int, default=16384)
    parse.add_argument("--quick", action="store_true", help="loads of some seconds: does everything work?")
    args = parse.parse_args()
    if args.quick:
        args.seconds, args.sessions, args.rate = 8, 2, 0.5
    args.venvs, args.out = args.venvs.resolve(), args.out.resolve()
    servers, models = pairs(args.server, 2), pairs(args.model, 3)
    only = list(filter(None, args.only.split(","))) or list(LOADS)
    unknown = [name for name in only if name not in LOADS]
    if unknown:
        sys.exit(f"--only: there is no load {unknown[0]!r}; the loads are {', '.join(LOADS)}")
    bad = 0
    for round_ in range(args.first, args.first + args.rounds):
        for model, file, tokenizer in models:
            for load in only:
                for name, program in servers if round_ % 2 == 1 else servers[::-1]:
                    if not measure(args, load, name, program, model, file, tokenizer, round_):
                        bad += 1
    table(args, servers, models)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
