#!/usr/bin/env bash
# Cancels a long answer after five chunks. Over HTTP a client cancels by closing its connection; the daemon then ends
# the request within one decode step.
set -euo pipefail
. "$(dirname "$0")/socket.sh"
body='{"messages":[{"role":"user","content":"Count to a million."}],"max_tokens":1500,"ignore_eos":true,"stream":true}'
exec 3< <(exec curl --silent --no-buffer --unix-socket "$S" http://uma/v1/chat/completions --data "$body")
curl=$!
chunks=0
while [ "$chunks" -lt 5 ] && IFS= read -r line <&3; do
	case $line in 'data: '*) chunks=$((chunks + 1)) ;; esac
done
kill "$curl"
exec 3<&-
echo "closed after $chunks chunks"
