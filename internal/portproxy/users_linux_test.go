package portproxy

import (
	"net/http"
	"testing"

	"github.com/uma-serve/uma-serve/internal/testutil/usertest"
)

// TestOtherUsers: the port is its user's alone.
func TestOtherUsers(t *testing.T) {
	usertest.NeedRoot(t)
	p := start(t, echo)
	if p.NeedsKey() {
		t.Skip("SKIPPED: this kernel does not tell users")
	}
	for uid, want := range map[uint32]int{0: 200, usertest.A: 403, usertest.B: 403} {
		resp, err := usertest.Client(t, uid).Get(p.URL() + "/v1/models")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("user %d: %s", uid, resp.Status)
		}
	}
	// The proxy of another user refuses root, too.
	p = start(t, echo, func(p *Proxy) { p.uid = usertest.A })
	for uid, want := range map[uint32]int{0: http.StatusForbidden, usertest.A: 200} {
		resp, err := usertest.Client(t, uid).Get(p.URL() + "/v1/models")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("user %d: %s", uid, resp.Status)
		}
	}
}
