package mooncake

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/uma-serve/uma-serve/meridian/fabric/internal/fault"
	"github.com/uma-serve/uma-serve/meridian/fabric/internal/seal"
)

// Scheme is the URL scheme of this fabric.
const Scheme = "mooncake"

// Config is a parsed URL:
//
//	mooncake://master[:port]?namespace_key_file=PATH[&option=value…]
//
//	namespace_key_file=PATH  required: file with 64 hexadecimal digits that only its owner may read; machines that
//	                         share prefixes have the same
//	metadata=URL             HTTP metadata server; default http://master:8080/metadata
//	max=1GiB                 largest value, pushed or pulled
//	connect_timeout=1s       for a connection to the master, the metadata server or a node
type Config struct {
	Master         string // host:port
	Metadata       string // URL
	Key            *seal.Key
	MaxBytes       int64
	ConnectTimeout time.Duration
}

const (
	defaultPort         = "50051"
	defaultMetadataPort = "8080"
)

// ParseURL parses a URL and reads the namespace key. Errors name the wrong part.
func ParseURL(raw string) (Config, error) {
	c := Config{MaxBytes: 1 << 30, ConnectTimeout: time.Second}
	u, options, err := fault.ParseURL(raw)
	if err != nil {
		return c, err
	}
	switch {
	case u.Scheme != Scheme:
		return c, fmt.Errorf("scheme %q is unknown; want %s", u.Scheme, Scheme)
	case u.Hostname() == "":
		return c, errors.New("host is missing; want mooncake://MASTER[:PORT]")
	case u.User != nil:
		return c, errors.New("a Mooncake master has no users or passwords; remove what precedes '@'")
	case u.Path != "" && u.Path != "/":
		return c, fmt.Errorf("path %q: a Mooncake master has none", u.Path)
	}
	port := u.Port()
	if port == "" {
		port = defaultPort
	}
	c.Master = net.JoinHostPort(u.Hostname(), port)
	c.Metadata = "http://" + net.JoinHostPort(u.Hostname(), defaultMetadataPort) + "/metadata"
	if err := fault.SetOptions(options, c.option); err != nil {
		return c, err
	}
	if c.Key == nil {
		return c, errors.New("option namespace_key_file is missing: Mooncake Store authenticates no client, so " +
			"values are sealed with a namespace key; make one with: (umask 077; openssl rand -hex 32 > FILE)")
	}
	return c, nil
}

func (c *Config) option(name, value string) (err error) {
	switch name {
	case "namespace_key_file":
		c.Key, err = seal.ReadKey(value)
	case "metadata":
		u, parseErr := url.Parse(value)
		if parseErr != nil || u.Scheme != "http" || u.Host == "" || u.RawQuery != "" {
			return fmt.Errorf("%q, want http://HOST:PORT/metadata; nodes with P2PHANDSHAKE are not supported", value)
		}
		c.Metadata = value
	case "max":
		c.MaxBytes, err = fault.ParseBytes(value)
		if err == nil && (c.MaxBytes < 4<<10 || c.MaxBytes > 1<<34) {
			err = fmt.Errorf("%s is outside of 4KiB to 16GiB", value)
		}
	case "connect_timeout":
		c.ConnectTimeout, err = time.ParseDuration(value)
		if err != nil || c.ConnectTimeout < time.Millisecond || c.ConnectTimeout > time.Minute {
			err = fmt.Errorf("%s, want a duration such as 500ms, 1ms to 1m", strconv.Quote(value))
		}
	default:
		return errors.New("is unknown; known are namespace_key_file, metadata, max, connect_timeout")
	}
	return err
}
