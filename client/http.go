package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/uma-serve/uma-serve/internal/wireclient"
)

// HTTP returns an HTTP client that connects to socket, or to DefaultSocket if socket is "", whatever the host of the
// URL. The daemon serves OpenAI's API there: http://uma-serve/v1/chat/completions.
func HTTP(socket string) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			if socket == "" {
				path, err := DefaultSocket()
				if err != nil {
					return nil, err
				}
				return wireclient.Connect(ctx, path)
			}
			return wireclient.Connect(ctx, socket)
		},
	}}
}

// maxHTTPBytes bounds an answer over HTTP.
const maxHTTPBytes = 64 << 20

// get fetches a path over a connection that it closes afterwards.
func get(ctx context.Context, socket, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://uma-serve"+path, nil)
	if err != nil {
		return nil, err
	}
	h := HTTP(socket)
	defer h.CloseIdleConnections()
	resp, err := h.Do(req)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, cause
		}
		if inner := errors.Unwrap(err); inner != nil {
			err = inner // without `Get "http://…"`
		}
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxHTTPBytes))
	if err != nil {
		return nil, fmt.Errorf("GET %s: %w", path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: the daemon answered %s: %.200s", path, resp.Status, body)
	}
	return body, nil
}
