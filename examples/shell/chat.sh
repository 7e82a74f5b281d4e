#!/usr/bin/env bash
# Prints a complete answer. With uma-cli: uma-cli run "What is 4821 + 977?"
set -euo pipefail
. "$(dirname "$0")/socket.sh"
jq -n --arg q "${*:-What is 4821 + 977?}" '{messages: [{role: "user", content: $q}], temperature: 0, max_tokens: 400}' |
	curl --silent --show-error --fail-with-body --unix-socket "$S" http://uma/v1/chat/completions --data @- |
	jq -r '.choices[0].message.content'
