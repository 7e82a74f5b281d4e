package nixl

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/meridian/fabric/internal/fault"
	"github.com/uma-serve/uma-serve/meridian/fabric/internal/seal"
)

// Scheme is the URL scheme of this fabric.
const Scheme = "nixl"

// Config is a parsed URL:
//
//	nixl://address[:port]?namespace_key_file=PATH[&option=value…]
//
//	namespace_key_file=PATH  required: file with 64 hexadecimal digits that only its owner may read; agents without
//	                         this key are refused
//	peers=HOST[:PORT],…      the other agents, at most 64; this one may be among them
//	library=PATH             libnixl_capi.so of NIXL 1.5; default libnixl_capi.so, which the dynamic linker finds
//	pool=512MiB              registered memory: the values that peers can read, and room for those on their way
//	max=64MiB                largest value; at most a quarter of the pool
//	socket=PATH              Unix socket between the agent and the daemon; default: beside the daemon's
type Config struct {
	Listen    string // host:port for peers
	Peers     []string
	Key       *seal.Key
	Library   string
	PoolBytes int64
	MaxBytes  int64
	Socket    string
}

const (
	defaultPort    = "7447"
	defaultLibrary = "libnixl_capi.so"
	maxPeers       = 64
)

// ParseURL parses a URL and reads the namespace key. Errors name the wrong part.
func ParseURL(raw string) (Config, error) {
	c := Config{Library: defaultLibrary, PoolBytes: 512 << 20, MaxBytes: 64 << 20}
	u, options, err := fault.ParseURL(raw)
	if err != nil {
		return c, err
	}
	switch {
	case u.Scheme != Scheme:
		return c, fmt.Errorf("scheme %q is unknown; want %s", u.Scheme, Scheme)
	case u.Hostname() == "":
		return c, errors.New("address is missing; want nixl://ADDRESS[:PORT], the address that peers connect to")
	case u.User != nil:
		return c, errors.New("NIXL agents have no users or passwords; remove what precedes '@'")
	case u.Path != "" && u.Path != "/":
		return c, fmt.Errorf("path %q: an agent has none", u.Path)
	}
	c.Listen = withPort(u.Host)
	if err := fault.SetOptions(options, c.option); err != nil {
		return c, err
	}
	switch {
	case c.Key == nil:
		return c, errors.New("option namespace_key_file is missing: agents recognize each other by it, and values " +
			"are sealed with it; make one with: (umask 077; openssl rand -hex 32 > FILE)")
	case c.MaxBytes > c.PoolBytes/4:
		return c, fmt.Errorf("option max is %d bytes; want at most a quarter of the pool, which has %d", c.MaxBytes,
			c.PoolBytes)
	}
	return c, nil
}

// withPort returns host:port.
func withPort(host string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), defaultPort)
}

func (c *Config) option(name, value string) (err error) {
	switch name {
	case "namespace_key_file":
		c.Key, err = seal.ReadKey(value)
	case "peers":
		for peer := range strings.SplitSeq(value, ",") {
			peer = withPort(strings.TrimSpace(peer))
			host, port, err := net.SplitHostPort(peer)
			if n, perr := strconv.ParseUint(port, 10, 16); err != nil || host == "" || perr != nil || n == 0 {
				return fmt.Errorf("%q, want HOST[:PORT]", peer)
			}
			if peer != c.Listen {
				c.Peers = append(c.Peers, peer)
			}
		}
		if len(c.Peers) > maxPeers {
			err = fmt.Errorf("%d peers, want at most %d", len(c.Peers), maxPeers)
		}
	case "library":
		if c.Library = value; value == "" {
			err = errors.New("is empty, want the path of libnixl_capi.so")
		}
	case "pool":
		c.PoolBytes, err = fault.ParseSize(value, 1<<20, 1<<40)
	case "max":
		c.MaxBytes, err = fault.ParseSize(value, 4<<10, 1<<34)
	case "socket":
		// The kernel's limit is 108 bytes with the final zero.
		if c.Socket = value; !filepath.IsAbs(value) || len(value) > 107 {
			err = fmt.Errorf("%q, want an absolute path of at most 107 bytes", value)
		}
	default:
		return errors.New("is unknown; known are namespace_key_file, peers, library, pool, max, socket")
	}
	return err
}

// WithSocket returns a URL of this fabric with the option socket, unless it has one. Other URLs are unchanged.
func WithSocket(raw, socket string) string {
	if !Is(raw) {
		return raw
	}
	u, err := url.Parse(raw)
	if err != nil || u.Query().Has("socket") {
		return raw // ParseURL says what is wrong
	}
	q := u.Query()
	q.Set("socket", socket)
	u.RawQuery = q.Encode()
	return u.String()
}

// Is reports whether a URL names this fabric.
func Is(raw string) bool { return strings.HasPrefix(raw, Scheme+"://") }

// stall is the longest wait for the agent's next bytes: it gives up a peer earlier.
const stall = 1900 * time.Millisecond
