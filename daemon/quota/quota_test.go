package quota

import (
	"strings"
	"testing"
	"time"
)

func TestLimits(t *testing.T) {
	for text, want := range map[string]Limits{
		"":  {},
		" ": {},
		"user_requests=8, background_queue = 64,": {UserRequests: 8, BackgroundQueue: 64},
		"session_requests=1,interactive_queue=2,background_queue=3,user_requests=4,user_cells=5," +
			"user_tokens_per_minute=6,interactive_step_tokens=7,background_step_tokens=8": {SessionRequests: 1,
			InteractiveQueue: 2, BackgroundQueue: 3, UserRequests: 4, UserCells: 5, UserTokensPerMinute: 6,
			InteractiveTokens: 7, BackgroundTokens: 8},
		"user_cells=0": {},
	} {
		var l, again Limits
		if err := l.Set(text); err != nil || l != want {
			t.Errorf("%q: %+v, %v; want %+v", text, l, err, want)
		}
		if err := again.Set(l.String()); err != nil || again != want {
			t.Errorf("%q is written %q, which reads as %+v, %v", text, l.String(), again, err)
		}
	}
	for text, want := range map[string]string{
		"user_requests":                          "has no value",
		"requests=8":                             "the limits are session_requests, interactive_queue",
		"user_cells=-1":                          "must be an integer of 0",
		"user_cells=1e3":                         "must be an integer of 0",
		"user_cells=9999999999":                  "must be an integer of 0",
		"user_cells=1,user_cells=2":              "is there twice",
		"user_cells=" + strings.Repeat("9", 500): "must be an integer",
	} {
		l := Limits{UserRequests: 7}
		if err := l.Set(text); err == nil || !strings.Contains(err.Error(), want) || l.UserRequests != 7 {
			t.Errorf("%.40q: %v, %+v; want an error that says %q", text, err, l, want)
		}
	}
}

func FuzzLimits(f *testing.F) {
	f.Add("user_requests=8,background_queue=64")
	f.Fuzz(func(t *testing.T, text string) {
		var l, again Limits
		if l.Set(text) != nil {
			return
		}
		if err := again.Set(l.String()); err != nil || again != l {
			t.Errorf("%q: %+v is written %q: %+v, %v", text, l, l.String(), again, err)
		}
	})
}

// TestTokens: a minute's tokens at once, then as they come; one overdraft, bounded; users are apart.
func TestTokens(t *testing.T) {
	at := time.Unix(1000, 0)
	tokens := NewTokens(600) // ten a second
	wait := func(user uint32, want time.Duration) {
		t.Helper()
		if got := tokens.Wait(user, at); got.Round(time.Millisecond) != want {
			t.Errorf("user %d waits %v, want %v", user, got, want)
		}
	}
	wait(1, 0)
	tokens.Spend(1, 600, at)
	wait(1, 100*time.Millisecond)
	wait(2, 0)
	at = at.Add(5 * time.Second)
	wait(1, 0)
	tokens.Spend(1, 650, at) // has 50
	wait(1, 60*time.Second+100*time.Millisecond)
	at = at.Add(time.Hour)
	wait(1, 0)
	tokens.Spend(1, 600, at)
	wait(1, 100*time.Millisecond) // an hour of rest is a minute's tokens
	tokens.Spend(1, 1<<30, at)
	wait(1, maxDebt*time.Minute+100*time.Millisecond)
	at = at.Add(-time.Hour) // a clock that goes back gives nothing
	tokens.Spend(2, 0, at)
	wait(2, 0)

	none := NewTokens(0)
	none.Spend(1, 1<<30, at)
	if none.Wait(1, at) != 0 || len(none.users) != 0 {
		t.Error("without a limit tokens are counted")
	}
}

// TestUsersAreForgotten: users whose balance is full take no memory.
func TestUsersAreForgotten(t *testing.T) {
	at := time.Unix(1000, 0)
	tokens := NewTokens(60)
	for user := range uint32(10 * keepUsers) {
		tokens.Spend(user, 1, at)
		at = at.Add(time.Second)
	}
	if len(tokens.users) > keepUsers {
		t.Errorf("%d users are kept, more than %d", len(tokens.users), keepUsers)
	}
}
