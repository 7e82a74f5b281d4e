#!/usr/bin/env bash
# Prints an answer as it comes. Each server-sent event is a line "data: {…}"; the last one is "data: [DONE]".
set -euo pipefail
. "$(dirname "$0")/socket.sh"
jq -n --arg q "${*:-What is 4821 + 977?}" \
	'{messages: [{role: "user", content: $q}], temperature: 0, max_tokens: 400, stream: true}' |
	curl --silent --show-error --fail-with-body --no-buffer --unix-socket "$S" --data @- \
		http://uma/v1/chat/completions |
	jq --raw-input --unbuffered --join-output \
		'select(startswith("data: {")) | .[6:] | fromjson | .choices[0].delta.content // ""'
echo
