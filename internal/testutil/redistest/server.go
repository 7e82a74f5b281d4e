// Package redistest starts real redis-server or valkey-server processes for tests of any package.
package redistest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
)

// Server is a server that a test starts on a free port, in a new directory.
type Server struct {
	Host string
	Port int

	t     testing.TB
	path  string
	dir   string
	netns string // network namespace; "" = the test's own
	args  []string

	mu  sync.Mutex // a proxy may kill it from its own goroutine
	cmd *exec.Cmd
	out bytes.Buffer
}

// Start runs the server that the PATH has with args, on the loopback interface. Without one it skips the test.
func Start(t testing.TB, args ...string) *Server {
	t.Helper()
	return StartAt(t, "127.0.0.1", "", args...)
}

// StartAt is Start on an address of network namespace netns; "" = the test's own.
func StartAt(t testing.TB, host, netns string, args ...string) *Server {
	t.Helper()
	s := &Server{Host: host, t: t, dir: t.TempDir(), netns: netns, args: args}
	for _, name := range []string{"valkey-server", "redis-server"} {
		if p, err := exec.LookPath(name); err == nil {
			s.path = p
			break
		}
	}
	if s.path == "" {
		t.Skip("neither valkey-server nor redis-server on the PATH")
	}
	s.Port = freePort(t)
	s.Start()
	t.Cleanup(s.Kill)
	return s
}

// freePort returns a port whose cluster bus port is free as well.
func freePort(t testing.TB) int {
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		bus, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port+busOffset)))
		l.Close()
		if err == nil {
			bus.Close()
			return port
		}
	}
	t.Fatalf("no port is free together with the one %d above it", busOffset)
	panic("unreachable")
}

// busOffset is the distance of a node's cluster bus port from its port.
const busOffset = 10_000

// Addr returns "host:port".
func (s *Server) Addr() string { return net.JoinHostPort(s.Host, strconv.Itoa(s.Port)) }

// URL returns the address as package fabric takes it.
func (s *Server) URL() string { return "redis://" + s.Addr() }

// Start starts the server again, in the same directory and on the same port, and waits until it answers.
func (s *Server) Start() {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	args := append([]string{s.path, "--bind", s.Host, "--port", strconv.Itoa(s.Port), "--dir", s.dir, "--save", "",
		"--appendonly", "no", "--logfile", "", "--daemonize", "no", "--protected-mode", "no"}, s.args...)
	if s.netns != "" {
		args = append([]string{"ip", "netns", "exec", s.netns}, args...)
	}
	s.cmd = exec.Command(args[0], args[1:]...)
	s.out.Reset()
	s.cmd.Stdout, s.cmd.Stderr = &s.out, &s.out
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	answers := false
	defer func() {
		if !answers {
			s.cmd.Process.Kill()
			s.cmd.Wait()
			s.t.Logf("%s says\n%s", s.path, s.out.Bytes())
		}
	}()
	waitfor.True(s.t, "the server answers", func() bool {
		c, err := net.Dial("tcp", s.Addr())
		if err != nil {
			return false
		}
		defer c.Close()
		// Accepting is not answering: wait until it does.
		c.SetDeadline(time.Now().Add(waitfor.Limit))
		io.WriteString(c, "PING\r\n")
		var b [1]byte
		_, err = c.Read(b[:])
		answers = err == nil
		return answers
	})
}

// Kill is SIGKILL: the server gets no chance to say goodbye.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd != nil {
		s.cmd.Process.Kill()
		s.cmd.Wait()
		s.cmd = nil
	}
}

// Signal sends a signal to the server: SIGSTOP makes it silent, SIGCONT ends that.
func (s *Server) Signal(sig os.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Error(err)
	}
}

// Command runs one command and returns the first bytes of the answer. An error fails the test.
func (s *Server) Command(args ...string) string {
	s.t.Helper()
	answer, err := s.Try(args...)
	if err != nil {
		s.t.Fatalf("%v: %v", args, err)
	}
	return answer
}

// Try is Command; an error is returned.
func (s *Server) Try(args ...string) (string, error) {
	c, err := net.Dial("tcp", s.Addr())
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(waitfor.Limit))
	fmt.Fprintf(c, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(c, "$%d\r\n%s\r\n", len(a), a)
	}
	b := make([]byte, 4096)
	n, err := c.Read(b)
	if err != nil {
		return "", err
	}
	if b[0] == '-' {
		return "", errors.New(string(b[:n]))
	}
	return string(b[:n]), nil
}

// slots is the number of slots of a cluster.
const slots = 16384

// Cluster makes one cluster of nodes, which were started with --cluster-enabled yes: each has an equal share of the
// slots, in order, and none has replicas.
func Cluster(t testing.TB, nodes ...*Server) {
	t.Helper()
	for i, s := range nodes {
		s.Command("CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(slots*i/len(nodes)), strconv.Itoa(slots*(i+1)/len(nodes)-1))
		s.Command("CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
	}
	for _, s := range nodes[1:] {
		s.Command("CLUSTER", "MEET", nodes[0].Host, strconv.Itoa(nodes[0].Port))
	}
	waitfor.True(t, "the cluster forms", func() bool {
		for _, s := range nodes {
			info := s.Command("CLUSTER", "INFO")
			if !strings.Contains(info, "cluster_state:ok") ||
				!strings.Contains(info, fmt.Sprintf("cluster_slots_ok:%d\r", slots)) {
				return false
			}
		}
		return true
	})
}

// NodeOf returns which of the nodes that Cluster was given has a key.
func NodeOf(key string, nodes ...*Server) int {
	slot, err := strconv.Atoi(strings.Trim(nodes[0].Command("CLUSTER", "KEYSLOT", key), ":\r\n"))
	if err != nil {
		nodes[0].t.Fatal(err)
	}
	for i := range nodes {
		if slot < slots*(i+1)/len(nodes) {
			return i
		}
	}
	panic("unreachable")
}
