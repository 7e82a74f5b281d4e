"""Prints an answer as it comes, the thinking on standard error."""

import sys

import uma

question = " ".join(sys.argv[1:]) or "What is 4821 + 977?"
with uma.Client() as client:
    for event in client.events(client.start(question, temperature=0, max_tokens=400)):
        if event["event"] == "token":
            out = sys.stderr if event["phase"] == "think" else sys.stdout
            print(event["text"], end="", file=out, flush=True)
    print()
