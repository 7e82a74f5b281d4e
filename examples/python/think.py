"""Bounds the thinking of a request. A budget is never exceeded: the daemon closes the think block, and the answer follows."""

import sys

import uma

question = " ".join(sys.argv[1:]) or "How much is 47 times 36?"
with uma.Client() as client:
    end = client.chat(question, temperature=0, max_tokens=400, think={"mode": "on", "budget_tokens": 24})
    thought = end.get("think", {"tokens": 0, "ended": "none"})
    print(end["text"])
    print(f"{thought['tokens']} of 24 tokens of thought, ended: {thought['ended']}")
