// Package mooncaketest starts real Mooncake Store processes for tests: mooncake_master and mooncake_client of the
// Python package that scripts/mooncake.sh installs.
package mooncaketest

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
)

// Variable names the folder that scripts/mooncake.sh has installed to.
const Variable = "UMA_MOONCAKE"

// Store is a master and at most one node, which listen on the loopback interface.
type Store struct {
	Master, Metadata, Admin string // addresses; Metadata is a URL

	t         testing.TB
	home, dir string
	keyFile   string
	size      string

	mu   sync.Mutex
	node *exec.Cmd
}

// Start runs a master and a node of size, such as "256 MB". Without the package it skips the test.
func Start(t testing.TB, size string) *Store {
	t.Helper()
	home := os.Getenv(Variable)
	if home == "" {
		t.Skipf("%s is not set; scripts/mooncake.sh FOLDER installs Mooncake and prints it", Variable)
	}
	ports := freePorts(t, 3)
	s := &Store{t: t, home: home, dir: t.TempDir(), size: size}
	s.Master = address(ports[0])
	s.Admin = address(ports[1])
	s.Metadata = "http://" + address(ports[2]) + "/metadata"
	s.keyFile = filepath.Join(s.dir, "key")
	if err := os.WriteFile(s.keyFile, []byte(strings.Repeat("5a", 32)), 0o600); err != nil {
		t.Fatal(err)
	}
	s.run("mooncake_master", "--rpc_port="+strconv.Itoa(ports[0]), "--metrics_port="+strconv.Itoa(ports[1]),
		"--metrics_host=127.0.0.1", "--enable_http_metadata_server=true", "--http_metadata_server_host=127.0.0.1",
		"--http_metadata_server_port="+strconv.Itoa(ports[2]))
	waitfor.True(t, "the master listens", func() bool { return listens(s.Master) && listens(address(ports[2])) })
	s.StartNode()
	return s
}

// URL returns the fabric's URL; more options may follow after '&'.
func (s *Store) URL() string {
	return "mooncake://" + s.Master + "?metadata=" + s.Metadata + "&namespace_key_file=" + s.keyFile
}

// StartNode starts a node and waits until the master knows it.
func (s *Store) StartNode() {
	s.t.Helper()
	port := freePorts(s.t, 1)[0]
	c := s.run("mooncake_client", "--host=127.0.0.1", "--port="+strconv.Itoa(port), "--master_server_address="+s.Master,
		"--metadata_server="+s.Metadata, "--global_segment_size="+s.size, "--protocol=tcp")
	s.mu.Lock()
	s.node = c
	s.mu.Unlock()
	waitfor.True(s.t, "the node is mounted", func() bool {
		// The node may have the name of a dead one, so that the names alone do not say it.
		return listens(address(port)) && len(s.Segments()) > 0
	})
}

// KillNode kills the node; its values are lost.
func (s *Store) KillNode() {
	s.mu.Lock()
	c := s.node
	s.node = nil
	s.mu.Unlock()
	if c != nil {
		_ = c.Process.Kill()
	}
}

// Node returns the node's process, to stop and continue it.
func (s *Store) Node() *os.Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.node.Process
}

// Segments returns the names of the nodes' memory that the master knows.
func (s *Store) Segments() []string {
	r, err := http.Get("http://" + s.Admin + "/get_all_segments")
	if err != nil {
		return nil
	}
	defer r.Body.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(r.Body); err != nil || r.StatusCode != http.StatusOK {
		return nil
	}
	return strings.Fields(b.String())
}

// Python runs a script with Mooncake's own client. The script has the variables store, a MooncakeDistributedStore, and
// dir, a folder for files.
func (s *Store) Python(dir, script string) string {
	s.t.Helper()
	head := fmt.Sprintf("import os\nfrom mooncake.store import MooncakeDistributedStore\n"+
		"store = MooncakeDistributedStore()\nassert store.setup('127.0.0.1', %q, 0, 64 << 20, 'tcp', '', %q) == 0\n"+
		"dir = %q\n", s.Metadata, s.Master, dir)
	c := exec.Command(filepath.Join(s.home, "venv/bin/python"), "-c", head+script+"\nos._exit(0)\n")
	c.Env = s.environment()
	var out, log bytes.Buffer
	c.Stdout, c.Stderr = &out, &log
	if err := c.Run(); err != nil {
		s.t.Fatalf("Mooncake's Python client: %v\n%s", err, log.Bytes())
	}
	return out.String()
}

func (s *Store) environment() []string {
	return append(os.Environ(), "LD_LIBRARY_PATH="+filepath.Join(s.home, "lib"), "MC_TCP_BIND_ADDRESS=127.0.0.1")
}

// run starts a program that ends with the test.
func (s *Store) run(name string, args ...string) *exec.Cmd {
	s.t.Helper()
	c := exec.Command(filepath.Join(s.home, "bin", name), args...)
	c.Env, c.Dir = s.environment(), s.dir
	if err := c.Start(); err != nil {
		s.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _ = c.Wait(); close(done) }()
	s.t.Cleanup(func() { _ = c.Process.Kill(); <-done })
	return c
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func listens(address string) bool {
	c, err := net.Dial("tcp", address)
	if err == nil {
		c.Close()
	}
	return err == nil
}

func freePorts(t testing.TB, n int) []int {
	t.Helper()
	ports := make([]int, n)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ports[i] = l.Addr().(*net.TCPAddr).Port
	}
	return ports
}
