package daemonproc

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
)

// Base is the beginning of every URL at a client of [HTTP].
const Base = "http://server"

// HTTP returns a client of the server at a socket. It keeps no connection for a second request: llama-server closes
// idle ones, and a request that is just being sent on one would be lost.
func HTTP(socket string) *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		}}}
}

// Get reads the JSON at an address into out; nil discards it.
func Get(ctx context.Context, c *http.Client, at string, out any) error {
	resp, err := send(ctx, c, http.MethodGet, at, nil)
	return decode(resp, err, out)
}

// Post sends body as JSON and reads the answer into out; nil discards it.
func Post(ctx context.Context, c *http.Client, at string, body, out any) error {
	resp, err := Stream(ctx, c, at, body)
	return decode(resp, err, out)
}

// Stream sends body as JSON and returns the answer, whose body the caller closes. An HTTP status other than 200 is an
// error with its text.
func Stream(ctx context.Context, c *http.Client, at string, body any) (*http.Response, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	return send(ctx, c, http.MethodPost, at, b)
}

func send(ctx context.Context, c *http.Client, method, at string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, at, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 500))
		return nil, fmt.Errorf("%s: HTTP %s: %s", req.URL.Path, resp.Status, bytes.TrimSpace(b))
	}
	return resp, nil
}

// decode reads an answer into out; nil discards it.
func decode(resp *http.Response, err error, out any) error {
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return &url.Error{Op: "read", URL: resp.Request.URL.Path, Err: err}
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("%s: %w in %.500s", resp.Request.URL.Path, err, b)
	}
	return nil
}
