package config

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/uma-serve/uma-serve/daemon/toolbox/setup"
)

// TestMCPTables: a table [mcp.NAME] describes a server of tools; what is not in it has a default.
func TestMCPTables(t *testing.T) {
	c, err := load(t, []string{"--config", write(t, `
[mcp.notes]
command = ["server", "/notes"]
read = ["/notes"]
write = ["/notes/new"]
network = true
tools = ["search"]
everyone = true
timeout = "5s"
memory = "512MiB"
env = {KEY = "secret"}
[mcp.far]
url = "https://example.org/mcp"
headers = {Authorization = "Bearer secret"}
`)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []setup.Server{
		{Name: "far", URL: "https://example.org/mcp", Headers: map[string]string{"Authorization": "Bearer secret"},
			Timeout: time.Minute, Memory: 1 << 30},
		{Name: "notes", Command: []string{"server", "/notes"}, Read: []string{"/notes"}, Write: []string{"/notes/new"},
			Network: true, Tools: []string{"search"}, Everyone: true, Timeout: 5 * time.Second, Memory: 512 << 20,
			Env: map[string]string{"KEY": "secret"}},
	}
	if !reflect.DeepEqual(c.MCP, want) {
		t.Errorf("got %+v\nwant %+v", c.MCP, want)
	}
	_, _, sections := NewFlagSet()
	var b bytes.Buffer
	if err := c.WriteTOML(&b, sections); err != nil {
		t.Fatal(err)
	}
	printed := b.String()
	if !strings.Contains(printed, "[mcp.notes]") || strings.Contains(printed, "secret") {
		t.Errorf("--print-config lacks a table or shows a secret:\n%s", printed)
	}
	again, err := load(t, []string{"--config", write(t, printed)}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range want {
		want[i].Env, want[i].Headers = nil, nil
	}
	if !reflect.DeepEqual(again.MCP, want) {
		t.Errorf("printed and read again: %+v\nwant %+v", again.MCP, want)
	}
	options, _, err := c.Alone().Encode()
	if err != nil || bytes.Contains(options, []byte("secret")) {
		t.Errorf("engine processes get the secrets: %v", err)
	}
}

// TestMCPTablesRefused: what is wrong with a table is said with its key.
func TestMCPTablesRefused(t *testing.T) {
	for text, want := range map[string]string{
		"[mcp]\nx = 1":                                  `"mcp.x" must be a table`,
		"[mcp.x]":                                       "mcp.x.command is missing",
		"[mcp.'a b']\ncommand = ['x']":                  "1…32 letters",
		"[mcp.x]\ncommand = 'x'":                        `"mcp.x.command" must be a list`,
		"[mcp.x]\ncommand = ['./x']":                    "absolute path",
		"[mcp.x]\ncommand = ['x']\nurl = 'http://h/'":   "exclude each other",
		"[mcp.x]\nurl = 'ftp://h/'":                     "mcp.x.url is",
		"[mcp.x]\nurl = 'http://h/'\nread = ['/a']":     "takes none of read",
		"[mcp.x]\ncommand = ['x']\nread = ['a']":        "absolute paths",
		"[mcp.x]\ncommand = ['x']\ntools = ['a b']":     "mcp.x.tools has",
		"[mcp.x]\ncommand = ['x']\ntimeout = '1h'":      "at most 10m0s",
		"[mcp.x]\ncommand = ['x']\ntimeout = 'soon'":    `"mcp.x.timeout"`,
		"[mcp.x]\ncommand = ['x']\nmemory = '1MiB'":     "256 MiB or more",
		"[mcp.x]\ncommand = ['x']\nheaders = {A = 'b'}": "belongs to url",
		"[mcp.x]\ncommand = ['x']\nenv = {A = 1}":       "must be a table of texts",
		"[mcp.x]\ncommand = ['x']\nnetwork = 'yes'":     "true or false",
		"[mcp.x]\ncommand = ['x']\ncomand = ['x']":      `did you mean "command"`,
		manyServers(setup.MaxServers + 1):               "the maximum is 16",
	} {
		if _, err := load(t, []string{"--config", write(t, text)}, nil); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%.200s: %v; want %q", text, err, want)
		}
	}
}

func manyServers(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("[mcp.s" + strings.Repeat("x", i+1) + "]\ncommand = ['x']\n")
	}
	return b.String()
}
