"""Makes thinking.json.gz: what Jinja2, set up as Hugging Face's apply_chat_template sets it up, renders for templates of
families that think, with each setting of thinking in the template's own words.

    pip install jinja2==3.1.6 && python3 thinking.py [FOLDER OF LLAMA.CPP'S models/templates]

The settings were read from the templates by a person; the test derives them from a request and compares. Templates that
are not in ../jinja/testdata/published are read from the folder; the test looks for them in the engine's source, and they
are not part of this repository.
"""
import datetime, gzip, hashlib, json, pathlib, sys, tarfile
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.ext import Extension
from jinja2 import nodes

class Refused(Exception):
    pass

def raise_exception(message):
    raise Refused(message)

class Generation(Extension):  # {% generation %} is transformers' tag around an answer; it renders what it holds
    tags = {"generation"}
    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.Scope(body, lineno=line)

env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation])
env.filters["tojson"] = lambda x, ensure_ascii=False, indent=None, separators=None, sort_keys=False: json.dumps(
    x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
env.filters["from_json"] = json.loads
env.globals["raise_exception"] = raise_exception
env.globals["strftime_now"] = lambda f: datetime.datetime(2026, 3, 7, 9, 5, 2).strftime(f)

TOOL = {"type": "function", "function": {"name": "find", "description": "Finds things.", "parameters": {
    "type": "object", "properties": {"thing": {"type": "string", "description": "what"}}, "required": ["thing"]}}}

def user(text): return {"role": "user", "content": text}
def part(thought, *texts): return {"content": [{"type": "thinking", "thinking": thought}, *(
    {"type": "text", "text": t} for t in texts)]}
def said(field, thought, text): return {"role": "assistant", "content": text, **(
    part(thought, text) if field == PART else {field: thought})}
def called(field, thought, number): return {"role": "assistant", "content": "", **(
    part(thought) if field == PART else {field: thought}), "tool_calls": [
    {"type": "function", "id": "call0000%d" % number, "function": {"name": "find", "arguments": {"thing": "cat"}}}]}
def result(number): return {"role": "tool", "tool_call_id": "call0000%d" % number, "name": "find", "content": "on the mat"}

def talks(field):
    """Two turns; two turns, the first of which has a call; and a turn that a call has interrupted."""
    a, b = user("Where is the cat?"), user("And the dog?")
    tools = {"tools": [TOOL]}
    return {
        "turns": {"messages": [a, said(field, "It may be in.", "On the mat."), b]},
        "tools": {"messages": [a, called(field, "I should look.", 1), result(1), said(field, "So it is in.", "On the mat."), b],
                  **tools},
        "within": {"messages": [a, called(field, "I should look.", 1), result(1)], **tools},
    }

def without(messages):
    """The messages without thoughts of earlier turns: what is done where the template has no word for it."""
    last = max(i for i, m in enumerate(messages) if m["role"] == "user")
    def bare(k, v):
        return "".join(p.get("text", "") for p in v) if k == "content" and isinstance(v, list) else v
    return [m if i >= last else {k: bare(k, v) for k, v in m.items() if k not in FIELDS} for i, m in enumerate(messages)]

PART = "part"
FIELDS = ("reasoning_content", "thinking", "reasoning")
LEFT_OUT = "left out"
def on(name): return {name: True}
def off(name): return {name: False}
def switched(name, efforts=True):
    """A truth value alone: an effort from low on turns it on."""
    yes = on(name)
    return {"off": off(name), "on": yes, "low": yes, "medium": yes, "high": yes, "max": yes}
def words(name, off, low, medium, high, most, on=None):
    return {"off": {name: off}, "on": {name: on} if on else {}, "low": {name: low}, "medium": {name: medium},
            "high": {name: high}, "max": {name: most}}
def both(name, other):
    return {k: {**v, other: v[name]} for k, v in switched(name).items()}
def efforts(name, most):
    """The efforts beside truth values."""
    yes = {"enable_thinking": True, "thinking": True}
    return {"off": {k: False for k in yes}, "on": yes, **{e: {**yes, name: w} for e, w in
            {"low": "low", "medium": "medium", "high": "high", "max": most}.items()}}

# family, template → its words for each setting; "thought" is the field of a thought, if it is not reasoning_content. Of
# templates that show no tools or no calls, for which the server adds them, the talk without tools is compared ("plain").
FAMILIES = {
    "Apertus-8B-Instruct": switched("enable_thinking"),
    "Cohere2MoE": {**switched("reasoning"), "keep": off("skip_thinking"), "drop": on("skip_thinking")},
    "GLM-4.7-Flash": {**switched("enable_thinking"), "keep": off("clear_thinking"), "drop": on("clear_thinking")},
    "Kimi-K3": {"off": off("thinking"), "on": on("thinking"),
        **{e: {"thinking": True, "thinking_effort": w} for e, w in
           {"low": "low", "medium": "high", "high": "high", "max": "max"}.items()}},
    "LFM2.5-8B-A1B": {"thought": "thinking", "keep": on("preserve_thinking"), "drop": off("preserve_thinking")},
    "MiniMax-M2": {},
    "Qwen-Qwen3-0.6B": switched("enable_thinking"),
    "deepseek-ai-DeepSeek-V3.1": {"plain": True, **both("enable_thinking", "thinking")},
    "deepseek-ai-DeepSeek-V3.2": both("enable_thinking", "thinking"),
    "deepseek-ai-DeepSeek-V4": {**efforts("reasoning_effort", "max"), "keep": off("drop_thinking"),
        "drop": on("drop_thinking")},
    "google-gemma-4-31B-it": switched("enable_thinking"),
    "ibm-granite-granite-3.3-2B-Instruct": {"plain": True, **switched("thinking")},
    "muse-glimmer": words("reasoning_strength", "low", "low", "medium", "high", "xhigh"),
    "openai-gpt-oss-120b": {"thought": "thinking", **words("reasoning_effort", "low", "low", "medium", "high", "high")},
    "openbmb-MiniCPM5-1B": switched("enable_thinking"),
    "poolside-Laguna-XS-2.1": switched("enable_thinking"),
    "tencent-Hy3": {**words("reasoning_effort", "no_think", "low", "high", "high", "high", on="high"),
        "keep": on("preserved_thinking"), "drop": off("preserved_thinking")},
    # of llama.cpp's folder
    "ByteDance-Seed-OSS": {"off": {"thinking_budget": 0}},
    "GLM-4.6": switched("enable_thinking"),
    "HuggingFaceTB-SmolLM3-3B": {"plain": True, **switched("enable_thinking")},
    "Kimi-K2-Thinking": {},
    "MiniMax-M3": {"off": {"thinking_mode": "disabled"}, **{e: {"thinking_mode": "enabled"} for e in
        ("on", "low", "medium", "high", "max")}},
    "mistralai-Ministral-3-14B-Reasoning-2512": {"thought": PART},
    "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": {**switched("enable_thinking"), "keep": off("truncate_history_thinking"),
        "drop": on("truncate_history_thinking")},
    "poolside-Laguna-S-2.1": {**switched("enable_thinking"), "keep": on("preserve_thinking"),
        "drop": off("preserve_thinking")},
    "Qwen3.5-4B": switched("enable_thinking"),
    "upstage-Solar-Open-100B": {"thought": "reasoning", **words("reasoning_effort", "minimal", "low", "medium", "high", "high"),
        "keep": {"think_render_option": "all"}, "drop": {"think_render_option": "lastthink"}},
}

here = pathlib.Path(__file__).parent
sources = {}
with tarfile.open(here / "../jinja/testdata/published/templates.tar.gz") as tar:
    for f in tar:
        if f.isfile():
            sources[pathlib.Path(f.name).stem] = tar.extractfile(f).read().decode()
known = set(sources)
for f in pathlib.Path(sys.argv[1]).glob("*.jinja") if len(sys.argv) > 1 else ():
    sources.setdefault(f.stem, f.read_text())
out = {}
for name, said_of in FAMILIES.items():
    if name not in sources:
        sys.exit(f"{name} is not there: name llama.cpp's models/templates")
    said_of = dict(said_of)
    field, plain = said_of.pop("thought", "reasoning_content"), said_of.pop("plain", False)
    template, outcomes = env.from_string(sources[name]), {}
    for setting in ("default", "off", "on", "low", "medium", "high", "max", "keep", "drop"):
        extra = said_of.get(setting, LEFT_OUT if setting == "drop" else {})
        for talk, vars in talks(field).items():
            if plain and "tools" in vars:
                continue
            vars = {"add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>", **vars}
            if extra == LEFT_OUT:
                vars["messages"] = without(vars["messages"])
            else:
                vars.update(extra)
            try:
                outcomes[f"{setting} {talk}"] = template.render(**vars)
            except Exception as e:
                outcomes[f"{setting} {talk}"] = None
                print(name, setting, talk, type(e).__name__, e, file=sys.stderr)
    out[name] = {"published": name in known, "sha256": hashlib.sha256(sources[name].encode()).hexdigest(),
                 "outputs": outcomes}
with open(here / "thinking.json.gz", "wb") as f, gzip.GzipFile("", "wb", 9, f, mtime=0) as z:
    z.write(json.dumps(out, ensure_ascii=False, sort_keys=True).encode())
