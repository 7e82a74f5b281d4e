package launch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
)

// backupSuffix follows the name of a settings file in that of its backup, which is there while it is changed.
const backupSuffix = ".uma-launch-backup"

// maxSettings is the largest settings file that is changed, in bytes.
const maxSettings = 8 << 20

// ErrNotJSON means that a settings file has another form than plain JSON, such as one with comments.
var ErrNotJSON = errors.New("it is not plain JSON")

// parse returns the members of a settings file; an empty one has none.
func parse(b []byte) (object, error) {
	if len(bytes.TrimSpace(b)) == 0 {
		return object{}, nil
	}
	in := json.NewDecoder(bytes.NewReader(b))
	in.UseNumber()
	var out object
	if err := in.Decode(&out); err != nil || out == nil {
		return nil, ErrNotJSON
	}
	if _, err := in.Token(); err != io.EOF {
		return nil, ErrNotJSON
	}
	return out, nil
}

// merge sets the members of patch in the settings old. Objects are merged, other values replaced.
func merge(old, patch []byte) ([]byte, error) {
	into, err := parse(old)
	if err != nil {
		return nil, err
	}
	add, err := parse(patch)
	if err != nil {
		return nil, err
	}
	set(into, add)
	return []byte(text(into)), nil
}

func set(into, add object) {
	for name, v := range add {
		inner, isObject := v.(object)
		at, isThere := into[name].(object)
		if isObject && isThere {
			set(at, inner)
			continue
		}
		into[name] = v
	}
}

// undo takes the members of patch out of the settings now, where they still have the values of patch: old values come
// back. What the program has changed meanwhile stays.
func undo(now, old, patch []byte) ([]byte, error) {
	var all [3]object
	for i, b := range [][]byte{now, old, patch} {
		var err error
		if all[i], err = parse(b); err != nil {
			return nil, err
		}
	}
	unset(all[0], all[1], all[2])
	return []byte(text(all[0])), nil
}

func isObjectValue(v any) bool {
	_, ok := v.(object)
	return ok
}

func unset(now, old, patch object) {
	for name, v := range patch {
		before, was := old[name]
		inner, isObject := v.(object)
		at, isThere := now[name].(object)
		switch {
		case isObject && isThere:
			of, _ := before.(object)
			unset(at, of, inner)
			if !was && !slices.ContainsFunc(slices.Collect(maps.Values(at)), isObjectValue) {
				delete(now, name) // with dates and the like that the program has put into the launch's object
			}
		case !reflect.DeepEqual(now[name], v): // the program has changed it
		case was:
			now[name] = before
		default:
			delete(now, name)
		}
	}
}

// Settings is a settings file that is changed for a while.
type Settings struct {
	path   string // the file itself, not a link to it
	backup *os.File
	old    []byte
	was    bool // there was a file
	mode   fs.FileMode
	made   []string // folders that were made, the outermost first
	patch  []byte
	wrote  []byte
}

// Change sets the members of f.Text in the file f.Path. What is there is kept in a backup beside it. A backup of an
// earlier launch that was killed is restored first.
func Change(f File) (_ *Settings, err error) {
	s := &Settings{path: f.Path, patch: []byte(f.Text), mode: 0o600}
	if real, err := filepath.EvalSymlinks(f.Path); err == nil {
		s.path = real
	}
	if s.made, err = makeDir(filepath.Dir(s.path)); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.removeDirs()
			err = fmt.Errorf("%s: %w", f.Path, err)
		}
	}()
	if err := s.lock(); err != nil {
		return nil, err
	}
	var left []byte // the backup of a launch that was killed
	fail := func(err error) (*Settings, error) {
		if len(left) == 0 {
			os.Remove(s.backup.Name())
		}
		s.backup.Close()
		return nil, err
	}
	now, err := read(s.path)
	if s.was = err == nil; err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fail(err)
	}
	if info, err := os.Stat(s.path); err == nil {
		s.mode = info.Mode().Perm()
	}
	s.old = now
	if left, err = io.ReadAll(io.LimitReader(s.backup, 2*maxSettings)); err != nil {
		return fail(err)
	}
	if kept, patch, ok := unpackBackup(left); ok && s.was {
		s.recover(now, kept, patch)
	}
	if s.wrote, err = merge(s.old, s.patch); err != nil {
		return fail(err)
	}
	if len(s.wrote) > maxSettings { // Restore would not read it
		return fail(fmt.Errorf("with what is set it would have %d bytes; at most %d are read", len(s.wrote),
			maxSettings))
	}
	if err := s.keep(); err != nil {
		return fail(err)
	}
	if err := write(s.path, s.wrote, s.mode); err != nil {
		return fail(err)
	}
	return s, nil
}

// A backup has the file before and what the launch has set in it: its port and key are not those of the next launch.
// The line at its end tells a whole backup from one that was being written.
const (
	backupHead = "uma-cli launch: the file before\n"
	backupSet  = "\n-- what was set --\n"
	backupTail = "\n-- end --\n"
)

func packBackup(old, patch []byte) []byte {
	return slices.Concat([]byte(backupHead), old, []byte(backupSet), patch, []byte(backupTail))
}

func unpackBackup(b []byte) (old, patch []byte, ok bool) {
	if b, ok = bytes.CutPrefix(b, []byte(backupHead)); !ok {
		return nil, nil, false
	}
	if b, ok = bytes.CutSuffix(b, []byte(backupTail)); !ok {
		return nil, nil, false
	}
	i := bytes.LastIndex(b, []byte(backupSet)) // the patch is JSON, which has no such lines
	if i < 0 {
		return nil, nil, false
	}
	return b[:i], b[i+len(backupSet):], true
}

// recover takes what a killed launch has set, patch, out of the file now; kept is the file before that launch.
func (s *Settings) recover(now, kept, patch []byte) {
	rest, err := undo(now, kept, patch)
	if err != nil {
		rest = kept
	}
	was, errWas := parse(kept)
	is, errIs := parse(rest)
	switch {
	case errWas == nil && errIs == nil && reflect.DeepEqual(was, is):
		s.old, s.was = kept, len(kept) > 0
	default:
		s.old = rest
	}
}

// lock opens the backup for this launch alone.
func (s *Settings) lock() (err error) {
	name := s.path + backupSuffix
	for {
		if s.backup, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
			return err
		}
		if err := flock(s.backup); err != nil {
			s.backup.Close()
			return errors.New("another uma-cli launch uses it; end that first")
		}
		mine, err := s.backup.Stat()
		there, errThere := os.Stat(name)
		if err == nil && errThere == nil && os.SameFile(mine, there) {
			return nil
		}
		s.backup.Close() // another launch has removed it between the two calls
		if err != nil || errThere != nil && !errors.Is(errThere, fs.ErrNotExist) {
			return errors.Join(err, errThere)
		}
	}
}

// keep writes the backup.
func (s *Settings) keep() error {
	if err := s.backup.Truncate(0); err != nil {
		return err
	}
	if _, err := s.backup.WriteAt(packBackup(s.old, s.patch), 0); err != nil {
		return err
	}
	return s.backup.Sync()
}

// Restore makes the file what it was, but for what the program has changed in it meanwhile.
func (s *Settings) Restore() error {
	defer s.backup.Close()
	now, err := read(s.path)
	switch {
	case errors.Is(err, fs.ErrNotExist): // the program has removed it
	case err != nil:
		return err
	case bytes.Equal(now, s.wrote) && !s.was:
		err = os.Remove(s.path)
	case bytes.Equal(now, s.wrote):
		err = write(s.path, s.old, s.mode)
	default:
		var rest []byte
		if rest, err = undo(now, s.old, s.patch); err != nil {
			return fmt.Errorf("%s was changed meanwhile, and %w; %s is the file before", s.path, err, s.backup.Name())
		}
		err = write(s.path, rest, s.mode)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Remove(s.backup.Name()); err != nil {
		return err
	}
	s.removeDirs()
	return nil
}

// removeDirs removes the folders that were made, if nothing is in them.
func (s *Settings) removeDirs() {
	for i := len(s.made) - 1; i >= 0; i-- {
		os.Remove(s.made[i])
	}
}

// MakeDir makes t.Dir, for files of one launch. It is below runtime, the user's folder for files of a login, or else
// below the user's caches: programs refuse settings below a folder that others can write to, such as /tmp.
func MakeDir(t *Target, runtime string) (remove func(), err error) {
	base := runtime
	if info, err := os.Stat(base); err != nil || !filepath.IsAbs(base) || info.Mode().Perm()&0o022 != 0 {
		base = filepath.Join(t.Home, ".cache", "uma-serve")
	}
	made, err := makeDir(base)
	if err != nil {
		return nil, err
	}
	s := &Settings{made: made}
	if t.Dir, err = os.MkdirTemp(base, "launch-"); err != nil { // 0700: its files have a key
		s.removeDirs()
		return nil, err
	}
	return func() {
		os.RemoveAll(t.Dir)
		s.removeDirs()
	}, nil
}

// makeDir makes a folder, and returns those that were not there.
func makeDir(dir string) (made []string, err error) {
	for at := dir; ; at = filepath.Dir(at) {
		if _, err := os.Stat(at); err == nil || at == filepath.Dir(at) {
			break
		}
		made = append([]string{at}, made...)
	}
	return made, os.MkdirAll(dir, 0o700)
}

func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, errors.New("it is no regular file")
	case info.Size() > maxSettings:
		return nil, fmt.Errorf("it has %d bytes; at most %d are read", info.Size(), maxSettings)
	}
	return io.ReadAll(io.LimitReader(f, maxSettings))
}

// write replaces a file as a whole.
func write(path string, b []byte, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".uma-*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}
