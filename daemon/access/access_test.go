package access

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/daemon/access/apikeys"
	"github.com/uma-serve/uma-serve/internal/testutil/usertest"
	"github.com/uma-serve/uma-serve/ipc"
	"github.com/uma-serve/uma-serve/ipc/sockdiag"
)

// TestListenMode: --listen-mode and --listen-group decide as the permissions of a socket file do.
func TestListenMode(t *testing.T) {
	a := &Gate{uid: 1000, gid: 77, groups: map[uint32]membership{}}
	for uid, in := range map[uint32]bool{1000: true, 2000: true, 3000: false} {
		a.groups[uid] = membership{in, time.Now().Add(time.Hour)}
	}
	for _, c := range []struct {
		mode                       os.FileMode
		root, own, member, strange bool
	}{
		{0o600, true, true, false, false}, {0o660, true, true, true, false}, {0o666, true, true, true, true},
		{0o606, true, true, false, true},
		{0o000, false, false, false, false}, {0o060, true, false, true, false}, {0o400, false, false, false, false},
		{0o755, true, true, false, false},
	} {
		a.Mode = c.mode
		for uid, want := range map[uint32]bool{0: c.root, 1000: c.own, 2000: c.member, 3000: c.strange} {
			if got := a.Allows(uid); got != want {
				t.Errorf("mode %04o: user %d is let in: %v", c.mode, uid, got)
			}
		}
	}
	if !inGroup(0, 0) || inGroup(0, 4242) || inGroup(usertest.A, 0) {
		t.Error("the user database: root is in group 0, and users that do not exist are in none")
	}
	// Many users do not grow the memory of groups.
	a.Mode = 0o660
	for uid := range uint32(3 * groupsOf) {
		a.Allows(100_000 + uid)
	}
	if len(a.groups) > groupsOf {
		t.Errorf("%d users are remembered", len(a.groups))
	}
}

// TestUnknownUsers: a client whose user the kernel does not tell is refused, with the reason, unless it has a key.
func TestUnknownUsers(t *testing.T) {
	a := &Gate{Mode: 0o666, groups: map[uint32]membership{}}
	peer := ipc.Peer{Remote: netip.MustParseAddrPort("192.0.2.1:5"), Unknown: sockdiag.ErrUnsupported}
	request := func(headers ...string) *http.Request {
		r := httptest.NewRequest("POST", "/v1/completions", nil)
		for _, h := range headers {
			name, value, _ := strings.Cut(h, ": ")
			r.Header.Set(name, value)
		}
		return r
	}
	if _, d := a.Client(request("x-api-key: key"), peer); d == nil || d.Status != 403 || d.Reason != RefusedUser ||
		!strings.Contains(d.Message, "does not tell which user") {
		t.Errorf("without --api-keys: %+v", d)
	}
	path := filepath.Join(t.TempDir(), "keys")
	err := os.WriteFile(path, []byte("key alice\n"), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if a.Keys, err = apikeys.Open(path, nil); err != nil {
		t.Fatal(err)
	}
	if _, d := a.Client(request(), peer); d == nil || d.Status != 401 || d.Reason != RefusedKey ||
		!strings.Contains(d.Message, "send an API key") {
		t.Errorf("with --api-keys: %+v", d)
	}
	if p, d := a.Client(request("x-api-key: key"), peer); d != nil || p.UID != apikeys.OwnerID("alice") ||
		p.Unknown != nil {
		t.Errorf("with a key: %+v, %+v", p, d)
	}
}
