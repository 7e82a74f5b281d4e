// Package quota bounds what a connection, a class and a user may ask of a server: the values of --limits, and the
// tokens that a user has left in this minute. Shares between users (sched/queue) need no quota; a quota holds even
// for a user that is alone. The package is pure: time is an argument.
package quota

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Limits are the values of --limits. 0 = no limit.
type Limits struct {
	SessionRequests     int // unfinished requests of a connection
	InteractiveQueue    int // queued requests of the class
	BackgroundQueue     int
	InteractiveTokens   int // prompt tokens of the class in a step
	BackgroundTokens    int
	UserRequests        int // unfinished requests of a user
	UserCells           int // KV cells of the prompts and answers of a user's unfinished requests
	UserTokensPerMinute int // prompt and answer tokens of a user's requests
}

// maxLimit bounds each value.
const maxLimit = 1 << 30

// keys are the names of the values, in the order in which String writes them.
var keys = []struct {
	name string
	of   func(*Limits) *int
}{
	{"session_requests", func(l *Limits) *int { return &l.SessionRequests }},
	{"interactive_queue", func(l *Limits) *int { return &l.InteractiveQueue }},
	{"background_queue", func(l *Limits) *int { return &l.BackgroundQueue }},
	{"interactive_step_tokens", func(l *Limits) *int { return &l.InteractiveTokens }},
	{"background_step_tokens", func(l *Limits) *int { return &l.BackgroundTokens }},
	{"user_requests", func(l *Limits) *int { return &l.UserRequests }},
	{"user_cells", func(l *Limits) *int { return &l.UserCells }},
	{"user_tokens_per_minute", func(l *Limits) *int { return &l.UserTokensPerMinute }},
}

// Names returns the names of the values.
func Names() (names []string) {
	for _, k := range keys {
		names = append(names, k.name)
	}
	return names
}

// Set parses "user_requests=8,background_queue=64"; "" is no limit. It implements pflag.Value.
func (l *Limits) Set(text string) error {
	var out Limits
	var seen []string
	for part := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		name, number, ok := strings.Cut(part, "=")
		name = strings.TrimSpace(name)
		at := slices.Index(Names(), name)
		switch {
		case !ok:
			return fmt.Errorf("%.80q has no value; write NAME=NUMBER, such as user_requests=8", part)
		case at < 0:
			return fmt.Errorf("%.80q is not a limit; the limits are %s", name, strings.Join(Names(), ", "))
		case slices.Contains(seen, name):
			return fmt.Errorf("%s is there twice", name)
		}
		n, err := strconv.Atoi(strings.TrimSpace(number))
		if err != nil || n < 0 || n > maxLimit {
			return fmt.Errorf("%s is %.40q; it must be an integer of 0 (no limit) to %d", name,
				strings.TrimSpace(number), maxLimit)
		}
		seen = append(seen, name)
		*keys[at].of(&out) = n
	}
	*l = out
	return nil
}

// String returns the limits as Set reads them.
func (l *Limits) String() string {
	var parts []string
	for _, k := range keys {
		if n := *k.of(l); n > 0 {
			parts = append(parts, fmt.Sprintf("%s=%d", k.name, n))
		}
	}
	return strings.Join(parts, ",")
}

// Type returns the placeholder of --help.
func (l *Limits) Type() string { return "NAME=N,…" }

// Tokens counts the tokens of each user against a number per minute. A user that was idle for a minute may spend a
// minute's tokens at once. The length of an answer is not known before its end, so tokens are spent then: a user may
// overdraw once, and waits until the minutes have paid for it. Safe for concurrent use.
type Tokens struct {
	perMinute float64 // 0 = no limit

	mu    sync.Mutex
	users map[uint32]*balance
}

// balance is the number of tokens that a user had left at a time.
type balance struct {
	tokens float64 // at most perMinute; negative: overdrawn
	at     time.Time
}

// keepUsers is the number of users above which those with a full balance are forgotten.
const keepUsers = 1024

// maxDebt bounds the wait of a user that has overdrawn, in minutes.
const maxDebt = 60

// NewTokens returns the count of a number per minute; 0 = no limit.
func NewTokens(perMinute int) *Tokens {
	return &Tokens{perMinute: float64(perMinute), users: map[uint32]*balance{}}
}

// at returns the balance of a user at now. Caller holds mu.
func (t *Tokens) at(user uint32, now time.Time) *balance {
	b := t.users[user]
	if b == nil {
		if len(t.users) >= keepUsers {
			t.forget(now)
		}
		b = &balance{tokens: t.perMinute, at: now}
		t.users[user] = b
	}
	if past := now.Sub(b.at); past > 0 {
		b.tokens, b.at = min(t.perMinute, b.tokens+past.Minutes()*t.perMinute), now
	}
	return b
}

// forget drops the users whose balance is full: they are as new ones.
func (t *Tokens) forget(now time.Time) {
	for user, b := range t.users {
		if b.tokens+now.Sub(b.at).Minutes()*t.perMinute >= t.perMinute {
			delete(t.users, user)
		}
	}
}

// Wait returns how long a user has to wait before its next request is admitted; 0 = it is admitted now.
func (t *Tokens) Wait(user uint32, now time.Time) time.Duration {
	if t.perMinute == 0 {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.at(user, now)
	if b.tokens > 0 {
		return 0
	}
	minutes := (1 - b.tokens) / t.perMinute
	return max(time.Duration(math.Ceil(minutes*float64(time.Minute))), time.Millisecond)
}

// Spend takes tokens of a user's finished request.
func (t *Tokens) Spend(user uint32, tokens int, now time.Time) {
	if t.perMinute == 0 || tokens <= 0 {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.at(user, now)
	b.tokens = max(b.tokens-float64(tokens), -maxDebt*t.perMinute)
}
