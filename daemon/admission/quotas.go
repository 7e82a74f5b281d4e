package admission

import (
	"fmt"
	"time"

	"github.com/uma-serve/uma-serve/daemon/quota"
	"github.com/uma-serve/uma-serve/ipc/wire"
)

// What --limits bounds beside the queues of the classes, which are the scheduler's. A request above a limit is refused,
// not queued: its client is told which limit it was and when to try again.

// Reasons in requests_refused_total of requests refused before the scheduler; its reasons are the rest.
const (
	RefusedShare   = "user_share"
	RefusedSession = "session_limit"
	RefusedUser    = "user_limit"
	RefusedTokens  = "token_limit"
	RefusedCells   = "cell_limit"
)

// RefusedEarly are all of them.
var RefusedEarly = []string{RefusedShare, RefusedSession, RefusedUser, RefusedTokens, RefusedCells}

// Quotas are the limits, and the tokens that users have left.
type Quotas struct {
	limits *quota.Limits
	tokens *quota.Tokens // user_tokens_per_minute
}

// NewQuotas returns the quotas of --limits.
func NewQuotas(limits *quota.Limits) *Quotas {
	return &Quotas{limits: limits, tokens: quota.NewTokens(limits.UserTokensPerMinute)}
}

// Over returns the error of a request whose connection or user is above a limit, and its reason. n are the unfinished
// requests of the connection, with this one.
func (q *Quotas) Over(owner uint32, n int, now time.Time) (*wire.Error, string) {
	if q.limits.SessionRequests > 0 && n > q.limits.SessionRequests {
		return overLimit(time.Second, "this connection has %d unfinished requests, the most that it may have "+
			"(--limits session_requests); wait for one to end", n-1), RefusedSession
	}
	if wait := q.tokens.Wait(owner, now); wait > 0 {
		return overLimit(wait, "your requests have used the %d tokens per minute that a user may use (--limits "+
			"user_tokens_per_minute); try again in %v", q.limits.UserTokensPerMinute,
			wait.Round(100*time.Millisecond)), RefusedTokens
	}
	return nil, ""
}

// Spend counts the tokens of a request that has ended.
func (q *Quotas) Spend(owner uint32, tokens int, now time.Time) { q.tokens.Spend(owner, tokens, now) }

func overLimit(retry time.Duration, format string, args ...any) *wire.Error {
	return &wire.Error{Code: wire.QueueLimit, RetryAfter: retry, Message: fmt.Sprintf(format, args...)}
}

// TooMany returns the error of a request that Waitroom.Enter has not admitted. Its results are mine and users.
func (w *Waitroom[J]) TooMany(mine, users int) (*wire.Error, string) {
	if users == 0 {
		return overLimit(time.Second, "%d of your requests are running or waiting, the most that a user may have "+
			"(--limits user_requests); wait for one to end", mine), RefusedUser
	}
	return overLimit(time.Second, "%d requests are running or waiting (--max-queue plus --parallel), %d of them "+
		"yours, and your share among %d users is %d; try again later", w.limit, mine, users,
		max(1, w.limit/users)), RefusedShare
}

// OverCells returns the error of an arriving request with which its user's unfinished requests would have more cells
// than --limits user_cells. held are those that they have.
func OverCells(limit, prompt, held int) *wire.Error {
	switch {
	case prompt > limit:
		return wire.Errorf(wire.PromptTooLarge, "the prompt has %d tokens, more than the %d cells of the KV cache "+
			"that a user may have (--limits user_cells); shorten it", prompt, limit)
	case held+prompt > limit:
		return overLimit(time.Second, "your unfinished requests have %d cells of the KV cache and this prompt %d "+
			"more; a user may have %d (--limits user_cells); wait for one to end", held, prompt, limit)
	}
	return nil
}
