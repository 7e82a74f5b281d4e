package httpd

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/ipc/wire"
)

func TestReadRouted(t *testing.T) {
	for _, c := range []struct {
		priority, deadline string
		want               routed
		bad                string
	}{
		{"", "", routed{}, ""},
		{"interactive", "250", routed{deadline: 250 * time.Millisecond}, ""},
		{"background", "", routed{background: true}, ""},
		{"high", "", routed{}, HeaderPriority},
		{"", "0", routed{}, HeaderDeadline},
		{"", "1e3", routed{}, HeaderDeadline},
		{"", "99999999999999999999", routed{}, HeaderDeadline},
	} {
		h := http.Header{}
		h.Set(HeaderPriority, c.priority)
		h.Set(HeaderDeadline, c.deadline)
		got, err := readRouted(h)
		if c.bad != "" {
			if err == nil || !strings.Contains(err.Error(), c.bad) {
				t.Errorf("%q %q: %v", c.priority, c.deadline, err)
			}
		} else if err != nil || got != c.want {
			t.Errorf("%q %q: %+v %v", c.priority, c.deadline, got, err)
		}
	}
}

func TestRoutedUser(t *testing.T) {
	a, err := routedUser(1000, "alice")
	if again, _ := routedUser(1000, "alice"); err != nil || a < 1<<31 || a != again {
		t.Errorf("%x %x %v", a, again, err)
	}
	bob, _ := routedUser(1000, "bob")
	if other, _ := routedUser(1001, "alice"); a == bob || a == other {
		t.Errorf("%x %x %x", a, bob, other)
	}
	for _, user := range []string{strings.Repeat("x", 129), "a b", "a\x00", "ä"} {
		if _, err := routedUser(1000, user); err == nil || !strings.Contains(err.Error(), HeaderUser) {
			t.Errorf("%q: %v", user, err)
		}
	}
}

// TestDeadlineBeforeDefaults: a router's deadline takes the place of the server's default, and a body that of both.
func TestDeadlineBeforeDefaults(t *testing.T) {
	def := wire.DefaultRequest()
	def.TargetTTFT, def.Priority = time.Second, wire.PriorityBackground
	for _, c := range []struct {
		defaults *wire.Request
		deadline time.Duration
		want     time.Duration // 0: the defaults as they are
	}{
		{nil, 0, 0},
		{nil, 250 * time.Millisecond, 250 * time.Millisecond},
		{&def, 0, 0},
		{&def, 250 * time.Millisecond, 250 * time.Millisecond},
	} {
		s := &Server{}
		s.Defaults = c.defaults
		got := s.defaults(context.WithValue(t.Context(), routedKey{}, routed{deadline: c.deadline}))
		if c.want == 0 {
			if got != c.defaults {
				t.Errorf("%v without a deadline: %v", c.defaults, got)
			}
			continue
		}
		if got.TargetTTFT != c.want || c.defaults != nil && got.Priority != c.defaults.Priority {
			t.Errorf("default %v, deadline %v: %v", c.defaults, c.deadline, got.TargetTTFT)
		}
	}
	if def.TargetTTFT != time.Second {
		t.Errorf("the server's default became %v", def.TargetTTFT)
	}
}
