package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// maxAliases is far above what a person keeps.
const maxAliases = 10_000

// aliasFile holds the aliases, one JSON object: name → target.
func (s *Store) aliasFile() string { return filepath.Join(s.dir, "aliases.json") }

// readAliases reads the aliases; none when there is no file.
func (s *Store) readAliases() (map[string]string, error) {
	text, err := readSmall(s.aliasFile(), maxSmall)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var aliases map[string]string
	if err := json.Unmarshal(text, &aliases); err != nil {
		return nil, fmt.Errorf("it does not hold aliases: %w", err)
	}
	for name := range aliases {
		if _, err := ParseName(name); err != nil {
			return nil, fmt.Errorf("an alias: %w", err)
		}
	}
	return aliases, nil
}

// SetAlias makes name stand for target, a name or a file, or for nothing when target is "". The file is replaced at
// once, so that a reader sees the old or the new one; several writers wait for each other. The error wraps ErrName, or
// is the file system's.
func (s *Store) SetAlias(name, target string) error {
	n, err := ParseName(name)
	if err != nil {
		return err
	}
	if n.Host != "" {
		return fmt.Errorf("%.100q is %w for an alias: it has a host", name, ErrName)
	}
	if _, err := ParseName(target); target != "" && err != nil && !filepath.IsAbs(target) {
		return err
	}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return err
	}
	unlock, err := lock(s.aliasFile() + ".lock")
	if err != nil {
		return err
	}
	defer unlock()
	aliases, err := s.readAliases()
	if err != nil {
		return fmt.Errorf("%s: %w", s.aliasFile(), err)
	}
	had := false
	for old := range aliases {
		if strings.EqualFold(old, name) {
			had = true
			delete(aliases, old)
		}
	}
	switch {
	case target == "" && !had:
		return fmt.Errorf("there is no alias %q", name)
	case target != "" && len(aliases) >= maxAliases:
		return fmt.Errorf("there are %d aliases; the maximum is %d", len(aliases), maxAliases)
	case target != "":
		if aliases == nil {
			aliases = map[string]string{}
		}
		aliases[name] = target
	}
	text, err := json.MarshalIndent(aliases, "", "  ")
	if err != nil {
		return err
	}
	return replace(s.aliasFile(), append(text, '\n'))
}

// lock waits for the lock of a file and returns what releases it. The file stays: to remove it could let two in.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|noFollow, 0o644)
	if err != nil {
		return nil, err
	}
	if err := flock(f); err != nil {
		f.Close()
		return nil, &fs.PathError{Op: "lock", Path: path, Err: err}
	}
	return func() { f.Close() }, nil
}

// replace writes a file so that its name leads to the old or to the new bytes, also after a power failure.
func replace(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // removes the file after an error
	_, err = f.Write(data)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}
