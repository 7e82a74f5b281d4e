package httpd

import (
	"net/http"
	"strings"
	"testing"
	"time"
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
