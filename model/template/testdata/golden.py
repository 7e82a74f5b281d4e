"""Makes golden.json: what Jinja2, set up as Hugging Face's apply_chat_template sets it up, renders for each
template here and each conversation below; an error is {"refused": message}.

    pip install jinja2==3.1.6 && python3 golden.py > golden.json
"""
import glob, json, os, datetime
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

class Refused(Exception):
    pass

def raise_exception(message):
    raise Refused(message)

env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
env.filters["tojson"] = lambda x, ensure_ascii=False, indent=None, separators=None, sort_keys=False: json.dumps(
    x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
env.globals["raise_exception"] = raise_exception
env.globals["strftime_now"] = lambda f: datetime.datetime(2026, 3, 7, 9, 5, 2).strftime(f)

def m(role, content, **more):
    return {"role": role, "content": content, **more}

TOOL = {"function": {"description": "Looks up \"facts\" & <more>", "name": "lookup", "parameters": {
    "properties": {"limit": {"type": "integer"}, "query": {"description": "what for", "type": "string"}}, "required": ["query"], "type": "object"}}, "type": "function"}
CALL = [{"function": {"arguments": {"limit": 3, "query": "é \"x\""}, "name": "lookup"}, "type": "function"}]

CONVERSATIONS = {
    "one": dict(messages=[m("user", "Hello {{ bos_token }} {% raw %}")], add_generation_prompt=True),
    "system": dict(messages=[m("system", " Be kind. "), m("user", "  Hi \n")], add_generation_prompt=True),
    "history": dict(messages=[m("user", "a"), m("assistant", "b"), m("user", "c")], add_generation_prompt=True),
    "done": dict(messages=[m("system", "s"), m("user", "a"), m("assistant", "b\n")], add_generation_prompt=False),
    "thinking in content": dict(messages=[m("user", "a"), m("assistant", "<think>\nhm\n</think>\n\nb"), m("user", "c")], add_generation_prompt=True),
    "reasoning apart": dict(messages=[m("user", "a"), m("assistant", "b", reasoning_content="hm")], add_generation_prompt=False),
    "no thinking": dict(messages=[m("user", "a")], add_generation_prompt=True, enable_thinking=False),
    "thinking": dict(messages=[m("user", "a")], add_generation_prompt=True, enable_thinking=True),
    "two users": dict(messages=[m("user", "a"), m("user", "b")], add_generation_prompt=True),
    "tools": dict(messages=[m("user", "a"), m("assistant", "", tool_calls=CALL), m("tool", "42"), m("tool", "43")], add_generation_prompt=True, tools=[TOOL]),
    "odd role": dict(messages=[m("user", "a"), m("critic", "b")], add_generation_prompt=True),
}

out = {}
for path in sorted(glob.glob(os.path.join(os.path.dirname(__file__) or ".", "*.jinja"))):
    name = os.path.basename(path).removesuffix(".jinja")
    template = env.from_string(open(path, encoding="utf-8").read())
    for key, conv in CONVERSATIONS.items():
        vars = {"tools": None, "documents": None, "bos_token": "<s>", "eos_token": "</s>", **conv}
        if name == "parts":
            vars["messages"] = [{**x, "content": [{"type": "text", "text": x["content"]}]} for x in vars["messages"]]
        try:
            out[f"{name}/{key}"] = {"out": template.render(**vars)}
        except Refused as e:
            out[f"{name}/{key}"] = {"refused": str(e)}
print(json.dumps({"conversations": CONVERSATIONS, "golden": out}, ensure_ascii=False, indent=1))
