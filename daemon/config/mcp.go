package config

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/uma-serve/uma-serve/daemon/toolbox/setup"
)

// mcpKeys are the keys of a table [mcp.NAME].
var mcpKeys = []string{"command", "url", "env", "headers", "read", "write", "network", "tools", "everyone",
	"unconfined", "timeout", "memory"}

// loadMCP reads the [mcp.NAME] tables of a file, by name.
func (c *Config) loadMCP(tables map[string]any) error {
	if len(tables) > setup.MaxServers {
		return fmt.Errorf("it has %d tables [mcp.NAME]; the maximum is %d", len(tables), setup.MaxServers)
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(tables)) {
		s, err := mcpServer(name, tables[name])
		if err == nil {
			err = s.Check()
		}
		errs = append(errs, err)
		c.MCP = append(c.MCP, s)
	}
	return errors.Join(errs...)
}

// mcpServer reads a table.
func mcpServer(name string, v any) (s setup.Server, err error) {
	s = setup.Server{Name: name, Timeout: setup.DefaultTimeout, Memory: setup.DefaultMemory}
	table, ok := v.(map[string]any)
	if !ok {
		return s, fmt.Errorf("key \"mcp.%s\" must be a table: [mcp.%s]", name, name)
	}
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(table)) {
		if err := setMCP(&s, key, table[key]); err != nil {
			errs = append(errs, fmt.Errorf("key \"mcp.%s.%s\" %w", name, key, err))
		}
	}
	return s, errors.Join(errs...)
}

// setMCP sets a key of a table.
func setMCP(s *setup.Server, key string, v any) (err error) {
	switch key {
	case "command":
		s.Command, err = textsOf(v)
	case "read":
		s.Read, err = textsOf(v)
	case "write":
		s.Write, err = textsOf(v)
	case "tools":
		s.Tools, err = textsOf(v)
	case "url":
		s.URL, err = valueOf[string](v, "a text")
	case "env":
		s.Env, err = textMapOf(v)
	case "headers":
		s.Headers, err = textMapOf(v)
	case "network":
		s.Network, err = valueOf[bool](v, "true or false")
	case "everyone":
		s.Everyone, err = valueOf[bool](v, "true or false")
	case "unconfined":
		s.Unconfined, err = valueOf[bool](v, "true or false")
	case "timeout":
		var text string
		if text, err = valueOf[string](v, `a duration such as "30s"`); err == nil {
			s.Timeout, err = time.ParseDuration(text)
		}
	case "memory":
		var text string
		if text, err = valueOf[string](v, `a size such as "512MiB"`); err == nil {
			var size Size
			if err = size.Set(text); err == nil {
				if s.Memory = size.Bytes; s.Memory == 0 {
					err = fmt.Errorf(`is %q; it must be a size such as "512MiB"`, text)
				}
			}
		}
	default:
		return fmt.Errorf("is unknown%s", didYouMean(key, mcpKeys))
	}
	return err
}

// valueOf returns a value of a type, or an error that says what it must be.
func valueOf[T any](v any, want string) (T, error) {
	out, ok := v.(T)
	if !ok {
		return out, fmt.Errorf("must be %s", want)
	}
	return out, nil
}

// textsOf returns a list of texts. An empty list is not nil.
func textsOf(v any) ([]string, error) {
	list, ok := v.([]any)
	out := []string{}
	for _, v := range list {
		text, is := v.(string)
		ok = ok && is
		out = append(out, text)
	}
	if !ok {
		return nil, errors.New("must be a list of texts")
	}
	return out, nil
}

// textMapOf returns a table of texts.
func textMapOf(v any) (map[string]string, error) {
	table, ok := v.(map[string]any)
	out := map[string]string{}
	for name, v := range table {
		text, is := v.(string)
		ok = ok && is
		out[name] = text
	}
	if !ok {
		return nil, errors.New("must be a table of texts")
	}
	return out, nil
}

// writeMCP writes the tables [mcp.NAME]. Values of env and headers can be secrets: their names are written alone.
func (c *Config) writeMCP(b *bytes.Buffer) {
	for i := range c.MCP {
		s := &c.MCP[i]
		fmt.Fprintf(b, "\n[mcp.%s]\n", s.Name)
		for _, list := range []struct {
			key   string
			value []string
		}{{"command", s.Command}, {"read", s.Read}, {"write", s.Write}, {"tools", s.Tools}} {
			if list.value != nil {
				fmt.Fprintln(b, line(list.key, list.value))
			}
		}
		if s.URL != "" {
			fmt.Fprintln(b, line("url", s.URL))
		}
		for _, flag := range []struct {
			key string
			on  bool
		}{{"network", s.Network}, {"everyone", s.Everyone}, {"unconfined", s.Unconfined}} {
			if flag.on {
				fmt.Fprintln(b, line(flag.key, true))
			}
		}
		fmt.Fprintln(b, line("timeout", s.Timeout.String()))
		fmt.Fprintln(b, line("memory", fmt.Sprintf("%db", s.Memory)))
		for key, table := range map[string]map[string]string{"env": s.Env, "headers": s.Headers} {
			if len(table) > 0 {
				fmt.Fprintf(b, "# %s is not shown; it sets %q\n", key, slices.Sorted(maps.Keys(table)))
			}
		}
	}
}

// mcpSample is the part of the sample file about the tables.
const mcpSample = `
# ---- MCP servers, whose tools requests to /v1/responses may name. Each runs in a sandbox; docs/mcp.md. ----

# [mcp.files]
# command = ['mcp-server-filesystem', '/home/me/notes']  # a program that speaks MCP on standard input and output
# url = 'https://example.org/mcp'   # or a server that speaks MCP over HTTP
# read = ['/home/me/notes']         # what the program may read, besides the system's programs
# write = ['/home/me/notes']        # and write
# network = true                    # it may use the network
# tools = ['read_file', 'search']   # the tools that are offered; default: all
# everyone = true                   # every client may use it, not only root and the server's user
# unconfined = true                 # no sandbox
# timeout = '60s'                   # of a call
# memory = '1GiB'                   # private memory of each of its processes
# env = {KEY = 'value'}             # variables of the program
# headers = {Authorization = 'Bearer …'}  # headers of requests to url
`
