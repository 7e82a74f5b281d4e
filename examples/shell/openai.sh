#!/usr/bin/env bash
# OpenAI's API: which models there are, and one answer with its usage.
set -euo pipefail
. "$(dirname "$0")/socket.sh"
model=$(curl --silent --show-error --fail-with-body --unix-socket "$S" http://uma/v1/models | jq -r '.data[0].id')
echo "model: $model"
jq -n --arg q "${*:-What is 4821 + 977?}" --arg m "$model" \
	'{model: $m, messages: [{role: "user", content: $q}], temperature: 0, max_tokens: 400}' |
	curl --silent --show-error --fail-with-body --unix-socket "$S" http://uma/v1/chat/completions --data @- |
	jq -r '.choices[0].message.content, "(\(.usage.completion_tokens) tokens)"'
