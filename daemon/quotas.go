package daemon

import (
	"fmt"
	"time"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

// What --limits bounds beside the queues of the classes, which are the scheduler's. A request above a limit is refused,
// not queued: its client is told which limit it was and when to try again.

// Reasons in requests_refused_total of requests refused before the scheduler; its reasons are the rest.
const (
	refusedShare   = "user_share"
	refusedSession = "session_limit"
	refusedUser    = "user_limit"
	refusedTokens  = "token_limit"
	refusedCells   = "cell_limit"
)

var refusedEarly = []string{refusedShare, refusedSession, refusedUser, refusedTokens, refusedCells}

// overQuota returns the error of a request whose connection or user is above a limit, and its reason.
func (s *Server) overQuota(r *request, now time.Time) (*wire.Error, string) {
	limits := &s.cfg.Limits
	if n := s.sessions.count(r.conn); limits.SessionRequests > 0 && n > limits.SessionRequests {
		return overLimit(time.Second, "this connection has %d unfinished requests, the most that it may have "+
			"(--limits session_requests); wait for one to end", n-1), refusedSession
	}
	if wait := s.tokens.Wait(r.Owner, now); wait > 0 {
		return overLimit(wait, "your requests have used the %d tokens per minute that a user may use (--limits "+
			"user_tokens_per_minute); try again in %v", limits.UserTokensPerMinute,
			wait.Round(100*time.Millisecond)), refusedTokens
	}
	return nil, ""
}

func overLimit(retry time.Duration, format string, args ...any) *wire.Error {
	return &wire.Error{Code: wire.QueueLimit, RetryAfter: retry, Message: fmt.Sprintf(format, args...)}
}

// overCells returns the error of an arriving request with which its user's unfinished requests would have more cells
// than --limits user_cells.
func (l *loop) overCells(r *request) *wire.Error {
	limit := l.cfg.Limits.UserCells
	if limit == 0 {
		return nil
	}
	held := 0
	for _, o := range l.requests {
		if o != r && o.Owner == r.Owner && !o.life.over() {
			held += o.Prompt + o.Generated()
		}
	}
	switch {
	case r.Prompt > limit:
		return &wire.Error{Code: wire.PromptTooLarge, Message: fmt.Sprintf("the prompt has %d tokens, more than the "+
			"%d cells of the KV cache that a user may have (--limits user_cells); shorten it", r.Prompt, limit)}
	case held+r.Prompt > limit:
		return overLimit(time.Second, "your unfinished requests have %d cells of the KV cache and this prompt %d "+
			"more; a user may have %d (--limits user_cells); wait for one to end", held, r.Prompt, limit)
	}
	return nil
}

// spend counts the tokens of a request that has ended. One that never started costs nothing.
func (s *Server) spend(r *request) {
	n := 0
	if r.Computed() > 0 {
		n = r.Prompt + r.Generated()
	}
	if r.embed != nil {
		for i := range r.embed.texts[:r.embed.next] {
			n += len(r.embed.texts[i].Tokens)
		}
	}
	s.tokens.Spend(r.Owner, n, time.Now())
}
