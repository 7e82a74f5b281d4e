package mooncake

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/uma-serve/uma-serve/meridian/fabric/internal/fault"
)

const (
	maxMetadata = 1 << 20 // of a segment's description
	maxSegments = 1024    // whose address is remembered
)

// metadata asks the metadata server where the nodes are, and remembers the answers.
type metadata struct {
	url    string
	client *http.Client

	mu    sync.Mutex
	known map[string]string // address of the data port by segment name
}

func newMetadata(url string, timeout time.Duration) *metadata {
	transport := &http.Transport{DialContext: (&net.Dialer{Timeout: timeout}).DialContext, MaxIdleConns: 2,
		MaxResponseHeaderBytes: 16 << 10, DisableCompression: true}
	return &metadata{url: url, client: &http.Client{Transport: transport, Timeout: stallTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		known: map[string]string{}}
}

// address returns where a segment's data port is.
func (m *metadata) address(ctx context.Context, segment string) (string, error) {
	m.mu.Lock()
	address := m.known[segment]
	m.mu.Unlock()
	if address != "" {
		return address, nil
	}
	ask := m.url + "?key=" + url.QueryEscape("mooncake/ram/"+segment)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, ask, nil)
	if err != nil {
		return "", fmt.Errorf("%w: %w", fault.ErrUnavailable, err)
	}
	answer, err := m.client.Do(request)
	if err != nil {
		return "", unavailable(ctx, fmt.Errorf("metadata server: %w", err))
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%w: metadata server: segment %.100q: %d %s", fault.ErrUnavailable, segment,
			answer.StatusCode, http.StatusText(answer.StatusCode))
	}
	b, err := io.ReadAll(io.LimitReader(answer.Body, maxMetadata+1))
	if err != nil {
		return "", unavailable(ctx, fmt.Errorf("metadata server: %w", err))
	}
	if address, err = parseSegment(b); err != nil {
		return "", fmt.Errorf("%w: metadata server: segment %.100q: %w", fault.ErrUnavailable, segment, err)
	}
	m.mu.Lock()
	if len(m.known) >= maxSegments {
		clear(m.known)
	}
	m.known[segment] = address
	m.mu.Unlock()
	return address, nil
}

// forget has the next address asked for again: a node that was started again has other ports.
func (m *metadata) forget(segment string) {
	m.mu.Lock()
	delete(m.known, segment)
	m.mu.Unlock()
}

// parseSegment returns the address of the data port in a segment's description.
func parseSegment(b []byte) (string, error) {
	if len(b) > maxMetadata {
		return "", fmt.Errorf("its description is longer than %d bytes", maxMetadata)
	}
	var s struct {
		Host  string `json:"tcp_data_host"`
		Port  int    `json:"tcp_data_port"`
		Proto int    `json:"tcp_proto_version"`
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return "", fmt.Errorf("its description is not JSON: %w", err)
	}
	if s.Host == "" || len(s.Host) > 255 || strings.ContainsAny(s.Host, " /\r\n\x00") || s.Port < 1 || s.Port > 65535 {
		return "", fmt.Errorf("its data port is %.100q port %d", s.Host, s.Port)
	}
	if s.Proto != dataVersion {
		return "", fmt.Errorf("it speaks version %d of the data protocol, want %d", s.Proto, dataVersion)
	}
	return net.JoinHostPort(s.Host, strconv.Itoa(s.Port)), nil
}

// A transfer begins with a header of 24 bytes: length, address, operation, padding. The node answers a status of 8
// bytes: before the bytes of a read, after those of a write.
const (
	dataVersion = 2
	opRead      = 0x80 // in version 2
	opWrite     = 0x81
	statusOK    = 0x4D43545600000000
)

func transferHeader(op byte, address uint64, n int) [24]byte {
	var b [24]byte
	binary.LittleEndian.PutUint64(b[:], uint64(n))
	binary.LittleEndian.PutUint64(b[8:], address)
	b[16] = op
	return b
}

func parseStatus(b []byte) error {
	if s := binary.LittleEndian.Uint64(b); s != statusOK {
		return fmt.Errorf("%w: the node refuses the transfer: status %#x", fault.ErrUnavailable, s)
	}
	return nil
}

// transfer reads or writes the bytes at an address of a node's memory.
func (f *Fabric) transfer(ctx context.Context, op byte, p place, b []byte) error {
	address, err := f.metadata.address(ctx, p.segment)
	if err != nil {
		return err
	}
	if err = f.transferTo(ctx, address, op, p.address, b); err != nil {
		f.metadata.forget(p.segment)
		return unavailable(ctx, fmt.Errorf("node %s: %w", address, err))
	}
	return nil
}

func (f *Fabric) transferTo(ctx context.Context, node string, op byte, address uint64, b []byte) error {
	c, err := dial(ctx, node, f.config.ConnectTimeout)
	if err != nil {
		return err
	}
	defer c.Close()
	s, stop := attend(ctx, c)
	defer stop()
	header := transferHeader(op, address, len(b))
	if _, err := s.Write(header[:]); err != nil {
		return err
	}
	if op == opWrite {
		if _, err := s.Write(b); err != nil {
			return err
		}
	}
	var status [8]byte
	if _, err := io.ReadFull(s, status[:]); err != nil {
		return err
	}
	if err := parseStatus(status[:]); err != nil || op == opWrite {
		return err
	}
	_, err = io.ReadFull(s, b)
	return err
}
