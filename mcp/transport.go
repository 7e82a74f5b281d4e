package mcp

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/uma-serve/uma-serve/daemon/toolbox/setup"
)

// flood counts the bytes that a server writes without being asked.
type flood struct{ bytes atomic.Int64 }

// asked begins to count anew.
func (f *flood) asked() { f.bytes.Store(0) }

var errFlood = fmt.Errorf("the server has written more than %d bytes since the last question", setup.MaxUnasked)

// counted is a reader of the server's bytes.
type counted struct {
	io.ReadCloser
	f *flood
}

func (c counted) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	if c.f.bytes.Add(int64(n)) > setup.MaxUnasked {
		return 0, errFlood
	}
	return n, err
}

// run starts the server's program and returns the transport to it. The program is in the bridge's process group, which
// the daemon ends as a whole.
func run(program string, s *setup.Server, f *flood) (sdk.Transport, error) {
	cmd := exec.Command(program, s.Command[1:]...)
	cmd.Args[0] = s.Command[0]
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, setup.ProcsVariable+"=")
	})
	if v, ok := s.Env[setup.ProcsVariable]; ok {
		cmd.Env = append(cmd.Env, setup.ProcsVariable+"="+v)
	}
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %.200s: %w (the sandbox lets it read the system's programs and the folders of "+
			"read and write)", s.Command[0], err)
	}
	go cmd.Wait()
	return &sdk.IOTransport{Reader: counted{out, f}, Writer: in, MaxLineLength: setup.MaxMessage}, nil
}

// overURL returns the transport to a server over HTTP.
func overURL(s *setup.Server, f *flood) sdk.Transport {
	return &sdk.StreamableClientTransport{Endpoint: s.URL, DisableStandaloneSSE: true, MaxRetries: -1,
		HTTPClient: &http.Client{Transport: &bounding{s, f, http.DefaultTransport},
			// A redirect leaves the address that the configuration names.
			CheckRedirect: func(*http.Request, []*http.Request) error {
				return errors.New("the server redirects; the configuration must name its address")
			}}}
}

// bounding adds the configuration's headers, and counts the answers' bytes.
type bounding struct {
	s    *setup.Server
	f    *flood
	next http.RoundTripper
}

func (b *bounding) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, v := range b.s.Headers {
		r.Header.Set(name, v)
	}
	resp, err := b.next.RoundTrip(r)
	if err == nil {
		resp.Body = counted{resp.Body, b.f}
	}
	return resp, err
}
