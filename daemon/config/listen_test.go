package config

import (
	"strings"
	"testing"
)

// TestListenOptions: what cannot be served is refused at the start, by option and reason.
func TestListenOptions(t *testing.T) {
	for args, want := range map[string]string{
		"--listen 0.0.0.0:8737":                           "--listen 0.0.0.0:8737 can be reached by other machines",
		"--listen [::]:8737":                              "--listen [::]:8737 can be reached by other machines",
		"--listen 192.168.1.5:8737":                       "add --api-keys FILE",
		"--listen example.org:80":                         `--listen "example.org:80" names no IP address`,
		"--listen 127.0.0.1":                              "is no address with a port",
		"--listen 127.0.0.1:8737 --listen 127.0.0.1:8737": "--listen names 127.0.0.1:8737 twice",
		"--listen 127.0.0.1:8737,[::ffff:127.0.0.1]:8737": "--listen names 127.0.0.1:8737 twice",
		"--listen 8737 --listen-mode 0000":                "--listen-mode is 0000, which lets no user in",
		"--listen 8737 --listen-mode 9":                   `--listen-mode is "9"; it must be octal permissions`,
		"--allowed-host http://x":                         `--allowed-host: "http://x" is no host name`,
		"--cors-origin example.org":                       `--cors-origin: "example.org" is no origin`,
	} {
		if _, err := load(t, strings.Fields(args), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
	if c, err := load(t, nil, []string{"UMA_LISTEN=127.0.0.1:1,[::1]:1"}); err != nil || len(c.Listen) != 2 ||
		c.Listen[1] != "[::1]:1" {
		t.Errorf("UMA_LISTEN: %q, %v", c.Listen, err)
	}
}

func TestTLSOptions(t *testing.T) {
	for args, want := range map[string]string{"--tls-key k": "--tls-cert FILE", "--tls-cert c": "--tls-key FILE",
		"--tls-cert self --tls-key k": "leave out --tls-key"} {
		_, err := load(t, append([]string{"-m", "x"}, strings.Fields(args)...), nil)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", args, err)
		}
	}
	if _, err := load(t, []string{"-m", "x", "--tls-cert", "self"}, nil); err != nil {
		t.Error(err)
	}
}
