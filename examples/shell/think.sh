#!/usr/bin/env bash
# Bounds the thinking of a request. A budget is never exceeded: the daemon closes the think block, and the answer
# follows.
set -euo pipefail
. "$(dirname "$0")/socket.sh"
jq -n --arg q "${*:-How much is 47 times 36?}" '
	{messages: [{role: "user", content: $q}], temperature: 0, max_tokens: 400,
	think: {mode: "on", budget_tokens: 24}}' |
	curl --silent --show-error --fail-with-body --unix-socket "$S" http://uma/v1/chat/completions --data @- |
	jq -r '.choices[0].message.content,
		"\(.usage.completion_tokens_details.reasoning_tokens) of 24 tokens of thought"'
