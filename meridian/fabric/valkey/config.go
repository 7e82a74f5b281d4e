package valkey

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/uma-serve/uma-serve/meridian/fabric/internal/fault"
)

// Schemes are the URL schemes of this fabric; rediss and valkeys use TLS.
var Schemes = []string{"valkey", "valkeys", "redis", "rediss"}

// Config is a parsed URL:
//
//	scheme://[user[:password]@]host[:port][/db][?option=value&…]
//
//	ttl=24h             time to live of a value after its last push; 0: until the server evicts it
//	chunk=1MiB          values are stored in pieces of this size, 4KiB … 64MiB
//	max=1GiB            largest value, pushed or pulled
//	conns=4             connections to each node, which bounds the operations at a time
//	prefix=uma          start of every key on the server
//	connect_timeout=2s  for connection, TLS and login
//	addr=host:port      another node of the cluster to connect to first; may be repeated
//	db=0                database number, as in the path; a cluster has only 0
//	password_file=PATH  file whose first line is the password, which process lists then do not show
//	ca=PATH             certificate authorities for the server's certificate (PEM), instead of the system's
//	cert=PATH, key=PATH client certificate and key (PEM)
//	skip_verify=true    accept any server certificate; only for a trusted network
type Config struct {
	Addresses      []string
	Username       string
	Password       string
	DB             int
	TLS            *tls.Config // nil: no TLS
	TTL            time.Duration
	ChunkBytes     int
	MaxBytes       int64
	Conns          int
	Prefix         string
	ConnectTimeout time.Duration
}

const (
	minChunk, maxChunk = 4 << 10, 64 << 20
	maxConns           = 64
	maxDB              = 1 << 20
)

// ParseURL parses a URL. Errors name the wrong part and never contain the password.
func ParseURL(raw string) (Config, error) {
	c := Config{TTL: 24 * time.Hour, ChunkBytes: 1 << 20, MaxBytes: 1 << 30, Conns: 4, Prefix: "uma",
		ConnectTimeout: 2 * time.Second}
	u, options, err := fault.ParseURL(raw)
	if err != nil {
		return c, err
	}
	secure := false
	switch u.Scheme {
	case "valkeys", "rediss":
		secure = true
	case "valkey", "redis":
	default:
		return c, fmt.Errorf("scheme %q is unknown; want one of %s", u.Scheme, strings.Join(Schemes, ", "))
	}
	if u.Hostname() == "" {
		return c, fmt.Errorf("host is missing; want %s://HOST[:PORT]", u.Scheme)
	}
	if u.Fragment != "" {
		return c, errors.New("'#' in the URL: write it as %23 in a password")
	}
	address, err := addressOf(u.Host)
	if err != nil {
		return c, fmt.Errorf("host: %w", err)
	}
	c.Addresses = []string{address}
	c.Username = u.User.Username()
	c.Password, _ = u.User.Password()
	if db := strings.Trim(u.Path, "/"); db != "" {
		if c.DB, err = number(db, 0, maxDB); err != nil {
			return c, fmt.Errorf("database (the path): %w", err)
		}
	}
	var files tlsFiles
	for _, v := range options["addr"] {
		if address, err = addressOf(v); err != nil {
			return c, fmt.Errorf("option addr: %w", err)
		}
		c.Addresses = append(c.Addresses, address)
	}
	delete(options, "addr")
	err = fault.SetOptions(options, func(name, value string) error { return c.option(name, value, &files) })
	if err != nil {
		return c, err
	}
	if secure {
		c.TLS, err = files.config()
		return c, err
	}
	if files != (tlsFiles{}) {
		return c, fmt.Errorf("options ca, cert, key and skip_verify need TLS: use %ss://", u.Scheme)
	}
	return c, nil
}

func (c *Config) option(name, value string, files *tlsFiles) (err error) {
	switch name {
	case "ttl":
		c.TTL, err = duration(value, 0, 365*24*time.Hour)
	case "connect_timeout":
		c.ConnectTimeout, err = duration(value, time.Millisecond, time.Minute)
	case "chunk":
		var n int64
		n, err = fault.ParseSize(value, minChunk, maxChunk)
		c.ChunkBytes = int(n)
	case "max":
		c.MaxBytes, err = fault.ParseSize(value, minChunk, 1<<40)
	case "conns":
		c.Conns, err = number(value, 1, maxConns)
	case "db":
		c.DB, err = number(value, 0, maxDB)
	case "prefix":
		c.Prefix, err = value, fault.CheckKey(value)
	case "password_file":
		var b []byte
		if b, err = os.ReadFile(value); err == nil {
			c.Password, _, _ = strings.Cut(string(b), "\n")
			c.Password = strings.TrimSuffix(c.Password, "\r")
		}
	case "ca":
		files.ca = value
	case "cert":
		files.cert = value
	case "key":
		files.key = value
	case "skip_verify":
		files.skipVerify, err = strconv.ParseBool(value)
	default:
		return errors.New("is unknown; known are ttl, chunk, max, conns, prefix, connect_timeout, addr, db, " +
			"password_file, ca, cert, key, skip_verify")
	}
	return err
}

type tlsFiles struct {
	ca, cert, key string
	skipVerify    bool
}

func (f tlsFiles) config() (*tls.Config, error) {
	// No ServerName: the dialer sets each node's name; in a cluster they differ.
	c := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: f.skipVerify}
	if f.ca != "" {
		pem, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, fmt.Errorf("option ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("option ca: %s contains no PEM certificate", f.ca)
		}
	}
	if (f.cert == "") != (f.key == "") {
		return nil, errors.New("options cert and key: set both or neither")
	}
	if f.cert != "" {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return nil, fmt.Errorf("options cert and key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// addressOf returns "host:port", with the default port if hostport has none.
func addressOf(hostport string) (string, error) {
	u := url.URL{Host: hostport}
	host, port := u.Hostname(), u.Port()
	if host == "" {
		return "", fmt.Errorf("%q has no host", hostport)
	}
	if port == "" {
		port = "6379"
	}
	if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
		return "", fmt.Errorf("port %q, want 1 to 65535", port)
	}
	return net.JoinHostPort(host, port), nil
}

func number(s string, lo, hi int) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < lo || n > hi {
		return 0, fmt.Errorf("%q, want a number from %d to %d", s, lo, hi)
	}
	return n, nil
}

func duration(s string, lo, hi time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < lo || d > hi || d%time.Millisecond != 0 {
		return 0, fmt.Errorf("%q, want a duration such as 1h30m or 500ms, %v to %v", s, lo, hi)
	}
	return d, nil
}
