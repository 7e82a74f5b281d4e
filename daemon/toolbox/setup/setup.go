// Package setup has the description of an MCP server in the configuration, its limits, and the lines that the daemon
// and a bridge process exchange about it.
package setup

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Limits of a server. What exceeds them ends the call, and where nothing else helps the process.
const (
	MaxServers     = 16        // tables [mcp.NAME]
	MaxTools       = 128       // of a server
	MaxPages       = 32        // of its list of tools
	MaxToolBytes   = 32 << 10  // of one tool's definition
	MaxToolsBytes  = 256 << 10 // of all definitions
	MaxArguments   = 256 << 10 // bytes of a call's arguments
	MaxResult      = 256 << 10 // bytes of a call's result; a longer one is cut
	MaxMessage     = 4 << 20   // bytes of one message of the server
	MaxUnasked     = 16 << 20  // bytes that the server writes per question
	MaxLine        = 8 << 20   // bytes of a line between the daemon and the bridge
	MaxCalls       = 4         // calls at the same time
	MaxNesting     = 64        // of arrays and objects in a tool's schema
	MaxName        = 64        // bytes of a tool's name
	StartTimeout   = 30 * time.Second
	ListTimeout    = 10 * time.Second
	DefaultTimeout = time.Minute
	MaxTimeout     = 10 * time.Minute
	DefaultMemory  = 1 << 30
	MinMemory      = 256 << 20 // the bridge, which has the limit too, runs in it
	IdleTimeout    = 5 * time.Minute
	FailedFor      = 5 * time.Second // no new start after a failed one
	MaxOpenFiles   = 1024
	MaxFileBytes   = 1 << 30 // of a file that the server writes
)

// Server is a table [mcp.NAME] of the configuration file.
type Server struct {
	Name    string            // requests name it as "server_label"
	Command []string          // a program and its arguments, which speaks MCP on standard input and output
	URL     string            // or the address of a server that speaks MCP over HTTP
	Env     map[string]string // of the program; besides PATH, HOME, TMPDIR, LANG, LC_ALL and TZ
	Headers map[string]string // of HTTP requests
	Read    []string          // folders and files that the program may read, besides the system's programs
	Write   []string          // and those that it may write
	Network bool              // the program may use the network
	Tools   []string          // the tools that are offered; nil = all
	// Everyone lets every client use the server, not only root and the daemon's user.
	Everyone   bool
	Unconfined bool // the program runs without a sandbox
	Timeout    time.Duration
	Memory     int64 // bytes of private memory of each process, the bridge among them
}

var (
	nameForm = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)
	toolForm = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)
)

// Check says what is wrong with the table.
func (s *Server) Check() error {
	var errs []error
	bad := func(key, format string, args ...any) {
		errs = append(errs, fmt.Errorf("mcp."+s.Name+"."+key+" "+format, args...))
	}
	if !nameForm.MatchString(s.Name) {
		errs = append(errs, fmt.Errorf("table [mcp.%.40q]: a name has 1…32 letters, digits, - and _", s.Name))
	}
	switch {
	case len(s.Command) > 0 && s.URL != "":
		bad("url", "and command exclude each other: a server is a program or an address")
	case len(s.Command) == 0 && s.URL == "":
		bad("command", "is missing: it is a list, the program and its arguments; url is the alternative")
	case s.URL != "":
		u, err := url.Parse(s.URL)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
			bad("url", "is %.100q; it must be http://HOST/PATH or https://HOST/PATH", s.URL)
		}
		if len(s.Read)+len(s.Write)+len(s.Env) > 0 || s.Network || s.Unconfined {
			bad("url", "takes none of read, write, env, network and unconfined, which are for programs")
		}
	case !filepath.IsAbs(s.Command[0]) && strings.ContainsRune(s.Command[0], '/'):
		bad("command", "begins with %.100q; name a program of PATH or an absolute path", s.Command[0])
	}
	if len(s.Headers) > 0 && s.URL == "" {
		bad("headers", "belongs to url")
	}
	for key, list := range map[string][]string{"read": s.Read, "write": s.Write} {
		for _, p := range list {
			if !filepath.IsAbs(p) {
				bad(key, "has %.100q; it must have absolute paths", p)
			}
		}
	}
	for _, t := range s.Tools {
		if !ToolName(t) {
			bad("tools", "has %.80q; a tool's name has 1…%d letters, digits, dots, - and _", t, MaxName)
		}
	}
	if s.Timeout <= 0 || s.Timeout > MaxTimeout {
		bad("timeout", "is %v; it must be more than 0 and at most %v", s.Timeout, MaxTimeout)
	}
	if s.Memory < MinMemory {
		bad("memory", "is %d bytes; it must be %d MiB or more", s.Memory, MinMemory>>20)
	}
	return errors.Join(errs...)
}

// ToolName reports whether a name is one that a model can call.
func ToolName(name string) bool { return toolForm.MatchString(name) }

// Offers reports whether the configuration offers a tool.
func (s *Server) Offers(tool string) bool { return s.Tools == nil || slices.Contains(s.Tools, tool) }

// ProcsVariable has the number of processors that Go's runtime uses. A bridge starts with a value that is not its
// program's.
const ProcsVariable = "GOMAXPROCS"

// Refusal says why a call, or a request for a server's tools, does not reach the server.
type Refusal int

// The refusals; Refusals has their names.
const (
	RefusedUser      Refusal = iota // the client may not use the server
	RefusedApproval                 // the client did not approve the call
	RefusedTool                     // there is no such tool, it is not offered, or has changed since the approval
	RefusedArguments                // they are no JSON, or too long
	RefusedLimit                    // of the response: calls, bytes of results
)

// Refusals are the names of the refusals.
var Refusals = [...]string{"user", "approval", "tool", "arguments", "limit"}

// Start is the first line to a bridge.
type Start struct {
	Server Server
	Temp   string // a folder for the program's temporary files
}

// TurnHeader is a header of the front's own requests to a model's process: they are answered there.
const TurnHeader = "X-Uma-Turn"

// Asks reports whether an HTTP request creates a response that may concern MCP servers: its body names them or an item
// of theirs, or continues from an answer that could have had them. Such a request is the front's.
func Asks(r *http.Request, body []byte) bool {
	return Responds(r) &&
		(bytes.Contains(body, []byte(`"mcp`)) || bytes.Contains(body, []byte(`"previous_response_id"`)))
}

// Responds reports whether an HTTP request creates a response.
func Responds(r *http.Request) bool {
	return r.Method == http.MethodPost && (r.URL.Path == "/v1/responses" || r.URL.Path == "/responses")
}

// Kinds of questions.
const (
	List   = "list"
	Call   = "call"
	Cancel = "cancel"
)

// Question is a line to a bridge.
type Question struct {
	ID        uint64
	Kind      string
	Name      string          `json:",omitempty"`
	Arguments json.RawMessage `json:",omitempty"`
}

// Answer is a line of a bridge. Error is of the server or the protocol; a tool's own failure is Result.Failed.
type Answer struct {
	ID     uint64
	Error  string  `json:",omitempty"`
	Gone   bool    `json:",omitempty"` // the server's connection has ended
	Tools  []Tool  `json:",omitempty"`
	Result *Result `json:",omitempty"`
}

// Tool is a tool's definition.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"input_schema"`
	ReadOnly    bool            `json:"-"`
}

// Result is a call's result.
type Result struct {
	Text   string
	Failed bool // the text says why
}

// CheckTools says what is wrong with a server's tools: a name that no model can call, one that is there twice, too many
// or too large definitions. One bad definition refuses all: a server that sends it cannot be trusted with the others.
func CheckTools(tools []Tool) error {
	if len(tools) > MaxTools {
		return fmt.Errorf("it has more than %d tools", MaxTools)
	}
	names, total := map[string]bool{}, 0
	for i := range tools {
		t := &tools[i]
		size := len(t.Name) + len(t.Description) + len(t.Schema)
		total += size
		switch {
		case !ToolName(t.Name):
			return fmt.Errorf("a tool's name is %.80q; it must have 1…%d letters, digits, dots, - and _", t.Name,
				MaxName)
		case names[t.Name]:
			return fmt.Errorf("it has two tools %q", t.Name)
		case size > MaxToolBytes:
			return fmt.Errorf("the definition of tool %s has %d bytes; the maximum is %d", t.Name, size, MaxToolBytes)
		case total > MaxToolsBytes:
			return fmt.Errorf("the definitions of its tools have more than %d bytes", MaxToolsBytes)
		case nesting(t.Schema) > MaxNesting:
			return fmt.Errorf("the schema of tool %s is nested more than %d deep", t.Name, MaxNesting)
		}
		var object map[string]json.RawMessage
		if json.Unmarshal(t.Schema, &object) != nil || object == nil {
			return fmt.Errorf("the schema of tool %s is no object", t.Name)
		}
		names[t.Name] = true
	}
	return nil
}

// nesting returns the depth of a JSON text.
func nesting(text []byte) (most int) {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			most = max(most, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return most
}

// CutNote bounds what Cut says of a text that it cuts, in bytes.
const CutNote = 128

// Cut returns a text of at most MaxResult bytes, and CutNote where it was longer.
func Cut(text string) string {
	text = strings.ToValidUTF8(text, "\ufffd")
	if len(text) <= MaxResult {
		return text
	}
	return strings.ToValidUTF8(text[:MaxResult], "") +
		fmt.Sprintf("\n[cut: the result had %d bytes, and a result has at most %d]", len(text), MaxResult)
}
