"""Prints a complete answer."""

import sys

import uma

question = " ".join(sys.argv[1:]) or "What is 4821 + 977?"
with uma.Client() as client:
    end = client.chat(question, temperature=0, max_tokens=400)
    print(end["text"])
    print(f"({end['reason']}, {end['usage']['completion_tokens']} tokens)", file=sys.stderr)
