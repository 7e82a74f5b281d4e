// Package configfile finds uma-serve's configuration file, for the daemon and for clients that need an option of it.
package configfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// System is the file of the machine, for a user who has none.
const System = "/etc/uma-serve/uma-serve.toml"

// variable names the file; set and empty: there is none.
const variable = "UMA_CONFIG"

// Find returns the first of $XDG_CONFIG_HOME/uma-serve/uma-serve.toml and System that exists, else "". systemd's %E
// names the same folders, for user services and system services. environ is os.Environ().
func Find(environ []string) string {
	var candidates []string
	// The XDG specification says to ignore a relative path.
	if dir, _ := lookup(environ, "XDG_CONFIG_HOME"); filepath.IsAbs(dir) {
		candidates = append(candidates, filepath.Join(dir, "uma-serve", "uma-serve.toml"))
	} else if home, _ := lookup(environ, "HOME"); filepath.IsAbs(home) {
		candidates = append(candidates, filepath.Join(home, ".config", "uma-serve", "uma-serve.toml"))
	}
	for _, path := range append(candidates, System) {
		// A file that exists but cannot be read is an error later: skipping it would ignore its options silently.
		if _, err := os.Stat(path); err == nil || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			return path
		}
	}
	return ""
}

func lookup(environ []string, name string) (value string, ok bool) {
	for _, kv := range environ {
		if v, has := strings.CutPrefix(kv, name+"="); has {
			value, ok = v, true
		}
	}
	return value, ok
}

// Option returns the text of an option in the file that the daemon reads: that of UMA_CONFIG, else that of Find. It is
// "" where there is no file, or the file does not have the option.
func Option(environ []string, option string) (string, error) {
	path, named := lookup(environ, variable)
	if !named {
		path = Find(environ)
	}
	if path == "" {
		return "", nil
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	var keys map[string]any
	if err := toml.Unmarshal(b, &keys); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	for key, v := range keys {
		if strings.ReplaceAll(key, "_", "-") == option {
			return fmt.Sprint(v), nil
		}
	}
	return "", nil
}
