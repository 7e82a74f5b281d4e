package bench

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
)

func TestCollectorChangesItsState(t *testing.T) {
	c, err := NewCollector()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	url := c.URL()
	// A connection that was closed with the collector is not used again.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	post := func(body io.Reader) error {
		resp, err := client.Post(url+"/v1/traces", "application/x-protobuf", body)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		if err == nil && (resp.StatusCode != http.StatusOK || len(answer) != 0) {
			t.Errorf("%s %q", resp.Status, answer)
		}
		return err
	}
	if err := post(strings.NewReader("spans")); err != nil {
		t.Fatal(err)
	}
	if err := c.Become(CollectorSlow); err != nil {
		t.Fatal(err)
	}
	if err := post(strings.NewReader(strings.Repeat("x", 250))); err != nil {
		t.Error(err)
	}
	sent, body := make(chan error), &endless{begun: make(chan struct{})}
	go func() { sent <- post(body) }()
	<-body.begun
	if err := c.Become(CollectorKilled); err != nil {
		t.Fatal(err)
	}
	if err := <-sent; err == nil || c.exports.Load() < 2 {
		t.Error("an export to a collector that was killed meanwhile succeeded")
	}
	if err := post(strings.NewReader("spans")); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a killed collector: %v", err)
	}
	if err := c.Become(CollectorQuick); err != nil || c.URL() != url {
		t.Fatal(err, c.URL())
	}
	if err := post(strings.NewReader("spans")); err != nil {
		t.Error(err)
	}
}

// endless is a body without an end.
type endless struct {
	begun chan struct{} // closed: it was read from
	once  sync.Once
}

func (e *endless) Read(p []byte) (int, error) {
	e.once.Do(func() { close(e.begun) })
	return len(p), nil
}
