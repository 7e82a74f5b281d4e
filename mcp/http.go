package mcp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"syscall"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/uma-serve/uma-serve/internal/portproxy"
)

// Path is the path of the server over HTTP.
const Path = "/mcp"

// HTTP is the server on a loopback port, for the processes of its user.
type HTTP struct{ port *portproxy.Proxy }

// ListenHTTP opens the port addr, which must be a loopback address.
func (s *Server) ListenHTTP(addr netip.AddrPort) (*HTTP, error) {
	// Without sessions there is nothing that a client could leave behind, and the number of sessions needs no limit.
	serve := sdk.NewStreamableHTTPHandler(func(*http.Request) *sdk.Server { return s.sdk },
		&sdk.StreamableHTTPOptions{Stateless: true, Logger: s.Log, MaxRequestBodyBytes: MaxMessageBytes,
			PropagateRequestCancellation: true})
	mux := http.NewServeMux()
	mux.Handle(Path, serve)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, fmt.Sprintf("%.100s: there is no such path; the MCP server is at %s", r.URL.Path, Path),
			http.StatusNotFound)
	})
	port, err := portproxy.ListenFor(addr, mux)
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) {
			return nil, fmt.Errorf("--listen %s: another program listens there; choose another port, or 0 for any",
				addr)
		}
		return nil, fmt.Errorf("--listen %s: %w", addr, err)
	}
	return &HTTP{port}, nil
}

// URL returns the address of the server.
func (h *HTTP) URL() string { return h.port.URL() + Path }

// Key returns the key that clients must send as "Authorization: Bearer KEY"; "" where the kernel tells users.
func (h *HTTP) Key() string { return h.port.Key() }

// Serve answers until ctx ends.
func (h *HTTP) Serve(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { h.port.Close() })
	defer stop()
	err := h.port.Serve()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// Close ends the server.
func (h *HTTP) Close() error { return h.port.Close() }
