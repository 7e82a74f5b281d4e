package ipc

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/internal/testutil/waitfor"
	"github.com/uma-serve/uma-serve/ipc/tlspipe"
)

// secureLoop is a Loop whose TCP listener speaks TLS.
type secureLoop struct {
	*Loop
	tls   *tlspipe.TLS
	addr  string
	roots *x509.CertPool
}

func serveTLS(t *testing.T, cfg Config, connections int, handler http.HandlerFunc) *secureLoop {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	s := &secureLoop{roots: x509.NewCertPool()}
	s.roots.AddCert(leaf)
	certificate := tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	s.tls = tlspipe.New(&tls.Config{Certificates: []tls.Certificate{certificate}}, connections)
	lns, err := Listen(ListenConfig{Path: filepath.Join(socketDir(t), "s"), TLS: s.tls,
		TCP: []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}})
	if err != nil {
		t.Fatal(err)
	}
	if lns[0].Secure() || !lns[1].Secure() {
		t.Error("the wrong listener speaks TLS")
	}
	s.addr = lns[1].Address()
	s.Loop = run(t, cfg, lns, newRecorder(), nil)
	web := &http.Server{ConnContext: ConnContext, ConnState: ConnState, ReadHeaderTimeout: cfg.HeaderTimeout,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			ctx, done, ok := Busy(q.Context())
			defer done()
			if !ok {
				panic(http.ErrAbortHandler)
			}
			handler(w, q.WithContext(ctx))
		})}
	served := make(chan struct{})
	go func() { defer close(served); web.Serve(s.HTTP()) }()
	t.Cleanup(func() { web.Close(); <-served })
	return s
}

func (s *secureLoop) client() *tls.Config { return &tls.Config{RootCAs: s.roots} }

func (s *secureLoop) dial(t *testing.T) *tls.Conn {
	t.Helper()
	c, err := tls.Dial("tcp", s.addr, s.client())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(waitfor.Limit))
	return c
}

// gone waits until no connection is left.
func (s *secureLoop) gone(t *testing.T) {
	t.Helper()
	waitfor.True(t, "no connection", func() bool { return s.tls.Connections() == 0 && s.Stats().Sessions.Load() == 0 })
}

// TestTLS: large bodies both ways, keep-alive, many at once; the kernel names the user as over plain TCP.
func TestTLS(t *testing.T) {
	s := serveTLS(t, Config{MaxSessions: 64}, 128, func(w http.ResponseWriter, r *http.Request) {
		p, _ := PeerOf(r.Context())
		n, err := io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "%d %v %d %v ", p.UID, p.Unknown, n, err)
		io.WriteString(w, strings.Repeat("x", 300_000))
	})
	want := fmt.Sprintf("%d <nil> 500000 <nil> ", syscall.Geteuid())
	transport := &http.Transport{TLSClientConfig: s.client(), ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 8,
		MaxConnsPerHost: 8}
	web := &http.Client{Transport: transport}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 5 {
				body := strings.NewReader(strings.Repeat("y", 500_000))
				resp, err := web.Post("https://"+s.addr+"/", "text/plain", body)
				if err != nil {
					t.Error(err)
					return
				}
				b, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if err != nil || len(b) != len(want)+300_000 || !strings.HasPrefix(string(b), want) ||
					resp.ProtoMajor != 1 {
					t.Errorf("%d bytes, %.60s, %v", len(b), b, err)
				}
			}
		})
	}
	wg.Wait()
	transport.CloseIdleConnections()
	if n := s.tls.Count(tlspipe.HandshakeDone); n < 1 || n > 8 {
		t.Errorf("%d handshakes", n)
	}
	s.gone(t)
}

// TestTLSClientLeaves: a handler hears that its client has left, whether or not that said so.
func TestTLSClientLeaves(t *testing.T) {
	left := make(chan error, 1)
	s := serveTLS(t, Config{}, 8, func(w http.ResponseWriter, r *http.Request) {
		io.WriteString(w, "begun")
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
		left <- context.Cause(r.Context())
	})
	for name, leave := range map[string]func(*tls.Conn){
		"close_notify": func(c *tls.Conn) { c.Close() },
		"FIN":          func(c *tls.Conn) { c.NetConn().Close() },
		"RST": func(c *tls.Conn) {
			c.NetConn().(*net.TCPConn).SetLinger(0)
			c.NetConn().Close()
		},
	} {
		c := s.dial(t)
		io.WriteString(c, getRoot)
		if _, err := bufio.NewReader(c).ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		leave(c)
		waitfor.Recv(t, "the end of a request whose client has left by "+name, left)
		s.gone(t)
	}
}

// TestTLSRefused: clients that do not speak TLS, that speak an old one, that do not trust the certificate, or of which
// there are too many.
func TestTLSRefused(t *testing.T) {
	s := serveTLS(t, Config{}, 64, func(http.ResponseWriter, *http.Request) {})
	plain := func(say string) string {
		c, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(waitfor.Limit))
		if _, err := io.WriteString(c, say); err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(c)
		return string(b)
	}
	if got := plain(getRoot); !strings.Contains(got, "400") || !strings.Contains(got, "https://") {
		t.Errorf("plain HTTP is answered %q", got)
	}
	if got := plain("\x00\x00\xff\x00" + strings.Repeat("x", 500)); strings.Contains(got, "HTTP") {
		t.Errorf("nonsense is answered %q", got)
	}
	for name, c := range map[string]*tls.Config{"TLS 1.1": {RootCAs: s.roots, MaxVersion: tls.VersionTLS11},
		"an unknown certificate": {}, "HTTP/2 alone": {RootCAs: s.roots, NextProtos: []string{"h2"}}} {
		if c, err := tls.Dial("tcp", s.addr, c); err == nil {
			c.Close()
			t.Errorf("%s: a handshake went well", name)
		}
	}
	s.gone(t)
	if n := s.tls.Count(tlspipe.HandshakePlain); n != 2 {
		t.Errorf("%d clients without TLS are counted", n)
	}
	if n := s.tls.Count(tlspipe.HandshakeFailed); n < 2 {
		t.Errorf("%d failed handshakes are counted", n)
	}
	s = serveTLS(t, Config{}, 2, func(http.ResponseWriter, *http.Request) {})
	a, b := s.dial(t), s.dial(t)
	c, err := tls.Dial("tcp", s.addr, s.client())
	if err == nil {
		c.Close()
		t.Error("a third connection where two may be")
	}
	if s.tls.Count(tlspipe.HandshakeRefused) != 1 {
		t.Error("it is not counted")
	}
	a.Close()
	b.Close()
	s.gone(t)
	s.dial(t)
}

// TestTLSSilent: a client that sends nothing, or half a handshake, holds nothing beyond the time for a request's head.
func TestTLSSilent(t *testing.T) {
	s := serveTLS(t, Config{HeaderTimeout: 50 * time.Millisecond}, 8, func(http.ResponseWriter, *http.Request) {})
	c := s.dial(t)
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("a client without a request is not closed")
	}
	s.gone(t)
}

// TestTLSStop: what was written before the end reaches the client.
func TestTLSStop(t *testing.T) {
	var answered atomic.Bool
	s := serveTLS(t, Config{}, 8, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		io.WriteString(w, strings.Repeat("z", 1<<20))
		answered.Store(true)
	})
	c := s.dial(t)
	io.WriteString(c, getRoot)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	first := make([]byte, 10)
	if _, err := io.ReadFull(resp.Body, first); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil && !errors.Is(err, io.EOF) || len(b)+len(first) != 1<<20 || !answered.Load() {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	c.Close()
	s.tls.Wait(waitfor.Limit)
	s.gone(t)
}

// TestTLSAnswerBeforeTheBody: an answer that does not wait for the request's body reaches the client that is still
// sending it.
func TestTLSAnswerBeforeTheBody(t *testing.T) {
	const answer = 1 << 20
	s := serveTLS(t, Config{MaxSessions: 64}, 64, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		io.WriteString(w, strings.Repeat("x", answer))
	})
	for i := range 10 {
		c := s.dial(t)
		if err := c.NetConn().(*net.TCPConn).SetReadBuffer(64 << 10); err != nil {
			t.Fatal(err)
		}
		go func() {
			fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", 64<<20)
			for piece := make([]byte, 1<<16); ; {
				if _, err := c.Write(piece); err != nil {
					return
				}
			}
		}()
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("client %d: %v", i, err)
		}
		b, err := io.ReadAll(resp.Body)
		if err != nil || len(b) != answer {
			t.Fatalf("client %d: %d bytes, %v", i, len(b), err)
		}
		c.Close()
	}
	s.gone(t)
}
