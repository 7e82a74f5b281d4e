"""Cancels a long answer after five tokens. The daemon ends it within one decode step and says what it has cost."""

import uma

with uma.Client() as client:
    # ignore_eos: the model's own end is never sampled, so the answer runs until it is cancelled.
    request = client.start("Count to a million.", max_tokens=1500, ignore_eos=True)
    tokens = 0
    for event in client.events(request):
        if event["event"] == "token":
            tokens += 1
            if tokens == 5:
                client.cancel(request)
    print(event["reason"], event["usage"]["completion_tokens"] >= 5)
