package config

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/uma-serve/uma-serve/internal/webguard"
	"github.com/uma-serve/uma-serve/ipc/tcpaddr"
)

// listFlag is an option of several values: comma-separated, and repeatable on the command line.
type listFlag struct {
	values *[]string
	set    bool // Set was called
}

// Set adds values; the first call replaces the default.
func (f *listFlag) Set(text string) error {
	if !f.set {
		*f.values, f.set = nil, true
	}
	for v := range strings.SplitSeq(text, ",") {
		if v = strings.TrimSpace(v); v != "" {
			*f.values = append(*f.values, v)
		}
	}
	return nil
}

func (f *listFlag) String() string { return strings.Join(*f.values, ",") }

// Type implements pflag.Value.
func (f *listFlag) Type() string { return "list" }

// setList sets an option of several values to those of a TOML list.
func setList(f *pflag.Flag, values []any) error {
	var texts []string
	for _, v := range values {
		s, ok := v.(string)
		if !ok || strings.Contains(s, ",") {
			return fmt.Errorf("holds %v: it must be a list of strings without commas", v)
		}
		texts = append(texts, s)
	}
	return f.Value.Set(strings.Join(texts, ","))
}

// SelfMadeCert as --tls-cert stands for a certificate that the daemon makes.
const SelfMadeCert = "self"

// listenOptions declares the options of the TCP listeners.
func (c *Config) listenOptions(fs *pflag.FlagSet) {
	fs.Var(&listFlag{values: &c.Listen}, "listen", "also serve HTTP on this TCP `ADDRESS:PORT`, such as "+
		"127.0.0.1:8737 or [::1]:8737; repeatable; port 0 = any free port. On Linux the kernel identifies the user "+
		"of a loopback client; all other clients need an API key (--api-keys)")
	fs.StringVar(&c.TLSCert, "tls-cert", "", "serve --listen over TLS with the certificate in this PEM `FILE` (the "+
		"intermediate ones behind it); read again when it changes. "+SelfMadeCert+" = one that the daemon makes, "+
		"whose fingerprint it shows")
	fs.StringVar(&c.TLSKey, "tls-key", "", "PEM `FILE` with the key of --tls-cert, which other users cannot read")
	fs.StringVar(&c.ListenMode, "listen-mode", "0600", "users of this machine that may use --listen without an API "+
		"key, in octal like the permissions of a socket file: 0600 = the daemon's user and root, 0660 = also "+
		"--listen-group, 0666 = all, 0000 = none")
	fs.StringVar(&c.ListenGroup, "listen-group", "", "`group` whose members may use --listen if --listen-mode admits "+
		"the group (default: the daemon's group)")
	fs.StringVar(&c.APIKeys, "api-keys", "", "`file` of API keys for --listen: lines KEY OWNER [COMMENT]; mode 0600; "+
		"read again when it changes. Each OWNER has a separate prefix cache and share of the server, as a user has")
	fs.Var(&listFlag{values: &c.AllowedHosts}, "allowed-host", "also accept this `NAME` in the Host header of "+
		"requests to --listen, besides localhost and the address that the client connected to; repeatable")
	fs.Var(&listFlag{values: &c.CORSOrigins}, "cors-origin", "let web pages of this `ORIGIN` use --listen "+
		"(https://chat.example.org, localhost for every port of this machine, or * for all); repeatable (default: "+
		"only the daemon's own pages; all, if --api-keys and --listen-mode 0000 demand a key of every client)")
	fs.Var(&listFlag{values: &c.RouterUsers}, "router-user", "`USER` that is a router in front of this daemon: its "+
		"requests may name their own user in the header X-Uma-User; a user id, or the OWNER of an API key; "+
		"repeatable. Each "+
		"user of a router has a separate prefix cache and share of the server (default: none)")
}

// validateListen checks the options of the TCP listeners.
func (c *Config) validateListen() (errs []error) {
	addrs, err := c.ListenAddresses()
	if err != nil {
		errs = append(errs, err)
	}
	for i, a := range addrs {
		if a.Port() != 0 && slices.Contains(addrs[:i], a) {
			errs = append(errs, fmt.Errorf("--listen names %s twice", a))
		}
		if err := c.MayListen(a); err != nil {
			errs = append(errs, err)
		}
	}
	switch {
	case c.TLSCert == "" && c.TLSKey != "":
		errs = append(errs, errors.New("--tls-key needs --tls-cert FILE"))
	case c.TLSCert == SelfMadeCert && c.TLSKey != "":
		errs = append(errs, errors.New("--tls-cert self makes its key: leave out --tls-key"))
	case c.TLSCert != "" && c.TLSCert != SelfMadeCert && c.TLSKey == "":
		errs = append(errs, errors.New("--tls-cert FILE needs --tls-key FILE"))
	}
	mode, err := ParseMode("listen-mode", c.ListenMode)
	if err != nil {
		errs = append(errs, err)
	} else if mode&0o222 == 0 && len(addrs) > 0 && c.APIKeys == "" {
		errs = append(errs, fmt.Errorf("--listen-mode is %s, which lets no user in: --listen then needs --api-keys "+
			"FILE", c.ListenMode))
	}
	for _, h := range c.AllowedHosts {
		if err := webguard.CheckHostName(h); err != nil {
			errs = append(errs, fmt.Errorf("--allowed-host: %w", err))
		}
	}
	for _, o := range c.CORSOrigins {
		if err := webguard.CheckOriginName(o); err != nil {
			errs = append(errs, fmt.Errorf("--cors-origin: %w", err))
		}
	}
	return errs
}

// ListenAddresses parses the addresses of --listen.
func (c *Config) ListenAddresses() (addrs []netip.AddrPort, err error) {
	var errs []error
	for _, text := range c.Listen {
		a, err := tcpaddr.Parse(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("--listen %w", err))
			continue
		}
		addrs = append(addrs, a)
	}
	return addrs, errors.Join(errs...)
}

// MayListen refuses an address that other machines can reach without --api-keys: nothing would identify its clients.
func (c *Config) MayListen(a netip.AddrPort) error {
	if c.APIKeys != "" || a.Addr().IsLoopback() {
		return nil
	}
	return fmt.Errorf("--listen %s can be reached by other machines, whose users the kernel does not know: "+
		"add --api-keys FILE, or listen on 127.0.0.1 or [::1]", a)
}

// ParseMode parses octal permission bits, the value of the option whose name an error has.
func ParseMode(option, text string) (os.FileMode, error) {
	var m uint32
	if n, err := fmt.Sscanf(text, "%o", &m); n != 1 || err != nil || m > 0o777 {
		return 0, fmt.Errorf("--%s is %q; it must be octal permissions such as 0660", option, text)
	}
	return os.FileMode(m), nil
}
