package daemon

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/uma-serve/uma-serve/internal/testutil/redistest"
	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/ipc/wire"
	"github.com/uma-serve/uma-serve/runtime/fake"
)

// TestFabricCluster: two daemons share prefixes through a real cluster of three nodes. Then one node is killed, and
// another one is cut off: silent, or out of reach in a network namespace. All answers stay the ones that a daemon
// without a fabric gives, no request is stuck, prefixes on the node that stays are hit, and when the others are back
// the cluster gets what it lacks.
func TestFabricCluster(t *testing.T) {
	t.Run("stopped", func(t *testing.T) {
		t.Parallel()
		clusterTest(t, "127.0.0.1", "", func(s *redistest.Server) func() {
			s.Signal(syscall.SIGSTOP)
			return func() { s.Signal(syscall.SIGCONT) }
		})
	})
	t.Run("namespace", func(t *testing.T) {
		t.Parallel()
		n := newNamespace(t)
		clusterTest(t, n.near, n.name, func(*redistest.Server) func() {
			n.ip("link", "set", n.link, "down")
			return func() { n.ip("link", "set", n.link, "up") }
		})
	})
}

// namespace is a network namespace that one link connects to the test's own.
type namespace struct {
	t               *testing.T
	name, link      string
	near, far, peer string // addresses of both ends of the link; its name in the namespace
}

// newNamespace makes a network namespace, or skips the test where that is not possible.
func newNamespace(t *testing.T) *namespace {
	if _, err := exec.LookPath("ip"); err != nil || os.Geteuid() != 0 {
		t.Skip("SKIPPED: a network namespace needs root and ip (iproute2); the subtest \"stopped\" needs neither")
	}
	net := fmt.Sprintf("10.213.%d.", os.Getpid()%250+1)
	id := fmt.Sprint("uma", os.Getpid())
	n := &namespace{t: t, name: id, link: id + "a", peer: id + "b", near: net + "1", far: net + "2"}
	if out, err := exec.Command("ip", "netns", "add", n.name).CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: ip netns add: %v: %s", err, out)
	}
	t.Cleanup(func() { exec.Command("ip", "netns", "delete", n.name).Run() })
	if out, err := exec.Command("ip", "link", "add", n.link, "type", "veth", "peer", "name", n.peer, "netns",
		n.name).CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: ip link add: %v: %s", err, out)
	}
	t.Cleanup(func() { exec.Command("ip", "link", "delete", n.link).Run() })
	n.ip("addr", "add", n.near+"/24", "dev", n.link)
	n.ip("link", "set", n.link, "up")
	n.ip("-n", n.name, "addr", "add", n.far+"/24", "dev", n.peer)
	n.ip("-n", n.name, "link", "set", n.peer, "up")
	return n
}

func (n *namespace) ip(args ...string) {
	n.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		n.t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// Nodes of the cluster under test. The daemons know the address of the first.
const (
	safe = iota
	killed
	cutOff
)

// clusterTest runs the test with nodes on host, of which cutOff is in network namespace netns; "" = in none. cut cuts
// it off until the function that it returns is called.
func clusterTest(t *testing.T, host, netns string, cut func(*redistest.Server) (heal func())) {
	args := []string{"--cluster-enabled", "yes", "--cluster-require-full-coverage", "no",
		"--cluster-node-timeout", "60000"}
	nodes := []*redistest.Server{redistest.StartAt(t, host, "", args...), redistest.StartAt(t, host, "", args...), nil}
	if netns == "" {
		nodes[cutOff] = redistest.Start(t, args...)
	} else {
		nodes[cutOff] = redistest.StartAt(t, host[:len(host)-1]+"2", netns, args...)
	}
	redistest.Cluster(t, nodes...)
	daemon := func() *running {
		return serve(t, fake.Config{}, "--cache-ram", "64MiB", "-c", "16384", "--fabric", nodes[safe].URL())
	}
	one, two := daemon(), daemon()

	// Prompts, some of which have all of their pieces on the node that stays.
	const tokens, pieces = 100, 3
	keys := func(seed int) (names []string) {
		one.inLoop(func(l *loop) {
			names = l.stores.Remote.Keys(nil, uint64(os.Getuid()), l.vocabTokens(text(seed, tokens)), 0)
		})
		for i, key := range names {
			names[i] = "uma:{" + key + "}" // as package valkey writes it
		}
		return names
	}
	var all, staying []int
	for seed := 0; len(staying) < 3; seed++ {
		on := map[int]bool{}
		for _, key := range keys(seed) {
			on[redistest.NodeOf(key, nodes...)] = true
		}
		stays := len(on) == 1 && on[safe]
		if stays {
			staying = append(staying, seed)
		}
		if stays || len(all) < 6 {
			all = append(all, seed)
		}
	}
	reference := serve(t, fake.Config{}, "--no-prefix-cache")
	// storm asks r for prompts from several clients, and returns how many came from the fabric.
	storm := func(r *running, seeds []int) (hits int) {
		t.Helper()
		var mu sync.Mutex
		var clients sync.WaitGroup
		for i := range 3 {
			c, rc := r.dial(), reference.dial()
			clients.Go(func() {
				for k := i; k < len(seeds); k += 3 {
					ask := raw(text(seeds[k], tokens), 8)
					got, want := r.ask(c, ask), reference.ask(rc, ask)
					if got.err != nil || got.text != want.text {
						t.Errorf("prompt %d: %+v, want %q", seeds[k], got, want.text)
					}
					if got.eos.Usage.CacheTier == wire.TierFabric && got.eos.Usage.CachedTokens >= pieces*32 {
						mu.Lock()
						hits++
						mu.Unlock()
					}
				}
			})
		}
		done := make(chan struct{})
		go func() { clients.Wait(); close(done) }()
		waitfor.Recv(t, "every request is answered", done)
		return hits
	}
	more := func(from, n int) (seeds []int) {
		for i := range n {
			seeds = append(seeds, 1000+from+i)
		}
		return seeds
	}

	storm(one, all)
	one.pushed()
	if hits := storm(two, all); hits != len(all) {
		t.Errorf("with all nodes: %d hits of %d", hits, len(all))
	}

	nodes[killed].Kill()
	three := daemon()
	if hits := storm(three, staying); hits != len(staying) {
		t.Errorf("one node killed: %d hits of %d on the node that stays", hits, len(staying))
	}
	storm(one, more(0, 6)) // some of their pieces belong to the killed node
	storm(three, all)
	nodes[killed].Start()

	heal := cut(nodes[cutOff])
	four := daemon()
	if hits := storm(four, staying); hits != len(staying) {
		t.Errorf("one node cut off: %d hits of %d on the node that stays", hits, len(staying))
	}
	storm(one, more(6, 6))
	storm(four, all)
	heal()

	// What the killed node has forgotten is pushed again when it is used, what failed meanwhile by itself.
	all = append(all, more(0, 12)...)
	one.renewAlways()
	eventually(t, "the cluster has everything again", func() bool {
		storm(one, all)
		missing := 0
		for _, seed := range all {
			for _, key := range keys(seed) {
				if n, err := nodes[redistest.NodeOf(key, nodes...)].Try("EXISTS", key); err != nil || n != ":1\r\n" {
					missing++
				}
			}
		}
		return missing == 0
	})
	if hits := storm(daemon(), all); hits != len(all) {
		t.Errorf("with all nodes again: %d hits of %d", hits, len(all))
	}
	t.Logf("attempts of pushes after the first: %v; values pushed again: %v; errors: %v timeouts, %v unavailable",
		one.counter("disagg_pushes_retried_total.valkey"), one.counter("disagg_pushed_again_total.valkey"),
		one.counter("disagg_errors_total.timeout"), one.counter("disagg_errors_total.unavailable"))
}
