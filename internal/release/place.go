package release

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Receipt records an installation: its origin and its files.
type Receipt struct {
	Version string   `json:"version"`
	URL     string   `json:"url,omitempty"` // of the release; "" when it was built from source
	Key     string   `json:"key,omitempty"` // the line of the public key
	Paths   []string `json:"paths"`         // links and files outside of PREFIX/lib/uma-serve, made by us
	Service bool     `json:"service"`       // a unit of systemd or launchd was installed
}

// Place is an installation below a prefix.
type Place struct {
	Prefix string
	Home   string // the user's, which stays whatever it holds
	// Units are the service files to install. Their names in the archive begin with a folder of the archive's contrib.
	Units []Unit
	// Run runs a program of the system: systemctl, launchctl, or the new uma-serve. Tests replace it.
	Run func(ctx context.Context, name string, args ...string) error
}

// Unit is a file of the archive that is copied, with the paths of the installation filled in.
type Unit struct{ From, To string }

// Root returns the folder that holds the versions.
func (p *Place) Root() string { return filepath.Join(p.Prefix, "lib", "uma-serve") }

func (p *Place) receiptPath() string { return filepath.Join(p.Root(), "receipt.json") }

// ErrNoReceipt reports that the installer has installed nothing there.
var ErrNoReceipt = errors.New("scripts/get.sh has installed nothing there")

// Receipt reads the receipt. The error wraps ErrNoReceipt where there is none.
func (p *Place) Receipt() (*Receipt, error) {
	b, err := os.ReadFile(p.receiptPath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", p.Prefix, ErrNoReceipt)
	}
	if err != nil {
		return nil, err
	}
	r := new(Receipt)
	if err := json.Unmarshal(b, r); err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", p.receiptPath(), err)
	}
	return r, nil
}

// Of returns the prefix of the installation that a program belongs to, by the program's real path.
func Of(program string) (prefix string, ok bool) {
	dir := filepath.Dir(filepath.Dir(program)) // PREFIX/lib/uma-serve/versions/NAME
	versions := filepath.Dir(dir)
	root := filepath.Dir(versions)
	if filepath.Base(versions) != "versions" || filepath.Base(root) != "uma-serve" ||
		filepath.Base(filepath.Dir(root)) != "lib" {
		return "", false
	}
	return filepath.Dir(filepath.Dir(root)), true
}

// shared are the folders of an archive whose files get a link at the same path below the prefix.
var shared = []string{"bin", "share/man/man1", "share/bash-completion/completions", "share/zsh/site-functions",
	"share/fish/vendor_completions.d", "share/doc"}

// folderName is the form of a version's folder: nothing that leads out of versions, and no temporary folder.
var folderName = regexp.MustCompile(`^[0-9A-Za-z][0-9A-Za-z.+~_-]{0,150}$`)

// again is the end of the folder's name of a version that replaces the same one while that is in use.
const again = ".again"

// Install makes an unpacked archive (tree, which it moves) the one in use. name is the name of the version's folder.
// What is in the way and is not ours is an error, before anything has changed. An error later leaves the old version in
// use, or the new one where only links and service files are missing.
func (p *Place) Install(ctx context.Context, tree, name string, r Receipt) error {
	if !folderName.MatchString(name) || strings.HasSuffix(name, again) {
		return fmt.Errorf("%q cannot be the name of a version's folder; letters, digits and . + ~ _ - are allowed",
			name)
	}
	if err := p.try(ctx, tree); err != nil {
		return err
	}
	links, err := p.links(tree)
	if err != nil {
		return err
	}
	old, err := p.Receipt()
	if errors.Is(err, ErrNoReceipt) {
		old = &Receipt{}
	} else if err != nil {
		return err
	}
	var foreign []string
	for _, l := range links {
		if !p.mayReplace(l.From) {
			foreign = append(foreign, l.From)
		}
	}
	for _, u := range p.Units {
		if _, err := os.Lstat(u.To); err == nil && !slices.Contains(old.Paths, u.To) {
			foreign = append(foreign, u.To)
		}
	}
	if len(foreign) > 0 {
		return fmt.Errorf("these files are of another installation (make install, a package?): %s; remove them, or "+
			"choose another --prefix", strings.Join(foreign, ", "))
	}
	now := p.target("current")
	same := strings.TrimSuffix(now, again) == name
	if now == name { // the folder in use is not touched before the link leads to the new one
		name += again
	}
	version := filepath.Join(p.Root(), "versions", name)
	if version != tree {
		if err := os.MkdirAll(filepath.Dir(version), 0o755); err != nil {
			return err
		}
		if err := os.RemoveAll(version); err != nil {
			return err
		}
		if err := os.Rename(tree, version); err != nil {
			return err
		}
	}
	// The receipt names the new paths before they exist: Remove removes the paths that exist, whenever this was
	// interrupted.
	r.Paths = slices.Clone(old.Paths)
	for _, l := range links {
		r.Paths = append(r.Paths, l.From)
	}
	for _, u := range p.Units {
		r.Paths = append(r.Paths, u.To)
	}
	slices.Sort(r.Paths)
	r.Paths = slices.Compact(r.Paths)
	r.Service = len(p.Units) > 0
	if err := p.write(&r); err != nil {
		return err
	}
	if now != "" && !same { // Rollback goes to another version, not to the same
		if err := p.link("previous", now); err != nil {
			return err
		}
	}
	if err := p.link("current", name); err != nil {
		return err
	}
	for _, l := range links {
		if err := symlink(l.To, l.From); err != nil {
			return err
		}
	}
	for _, u := range p.Units {
		if err := p.unit(version, u); err != nil {
			return err
		}
	}
	return p.prune()
}

// Rollback makes the version before the one in use the one in use, and returns its name.
func (p *Place) Rollback() (string, error) {
	r, err := p.Receipt()
	if err != nil {
		return "", err
	}
	now, before := p.target("current"), p.target("previous")
	if before == "" {
		return "", errors.New("there is no earlier version: an upgrade keeps the one that it replaces")
	}
	if _, err := os.Stat(filepath.Join(p.Root(), "versions", before, "bin")); err != nil {
		return "", fmt.Errorf("the earlier version is damaged: %w", err)
	}
	if err := p.link("current", before); err != nil {
		return "", err
	}
	r.Version = versionOf(before)
	return before, errors.Join(p.link("previous", now), p.write(r))
}

// versionOf undoes FolderName.
func versionOf(folder string) string {
	folder = strings.TrimSuffix(folder, again)
	if i := strings.LastIndexByte(folder, '_'); i > 0 {
		return folder[:i]
	}
	return folder
}

// FolderName returns the name of the folder of an archive's version.
func FolderName(a Archive) string { return a.Version + "_" + a.SHA256[:min(len(a.SHA256), 12)] }

// try starts the new daemon: one for another processor or with a newer C library ends at once.
func (p *Place) try(ctx context.Context, tree string) error {
	program := filepath.Join(tree, "bin", "uma-serve")
	if _, err := os.Stat(program); err != nil {
		return fmt.Errorf("the archive has no bin/uma-serve: %w", err)
	}
	if err := p.Run(ctx, program, "--version"); err != nil {
		return fmt.Errorf("the new uma-serve does not start on this machine (%w); build from source: scripts/get.sh "+
			"--source", err)
	}
	return nil
}

// links returns a link from below the prefix to each file of the archive that has one.
func (p *Place) links(tree string) (list []Unit, err error) {
	for _, folder := range shared {
		entries, err := os.ReadDir(filepath.Join(tree, folder))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			from := filepath.Join(p.Prefix, folder, e.Name())
			to, err := filepath.Rel(filepath.Dir(from), filepath.Join(p.Root(), "current", folder, e.Name()))
			if err != nil {
				return nil, err
			}
			list = append(list, Unit{From: from, To: to})
		}
	}
	return list, nil
}

// mayReplace reports whether a path is free or a link into our folder.
func (p *Place) mayReplace(path string) bool {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return true
	}
	to, err := os.Readlink(path)
	return err == nil && strings.Contains(filepath.ToSlash(to), "lib/uma-serve/current/")
}

// target returns the name of the version that the link current or previous leads to, "" if there is none.
func (p *Place) target(link string) string {
	to, err := os.Readlink(filepath.Join(p.Root(), link))
	if err != nil {
		return ""
	}
	return filepath.Base(to)
}

func (p *Place) link(name, version string) error {
	return symlink(filepath.Join("versions", version), filepath.Join(p.Root(), name))
}

// symlink puts a link in place of whatever link is there, in one step.
func symlink(to, from string) error {
	if err := os.MkdirAll(filepath.Dir(from), 0o755); err != nil {
		return err
	}
	temporary := from + ".new"
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(to, temporary); err != nil {
		return err
	}
	return os.Rename(temporary, from)
}

func (p *Place) write(r *Receipt) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return replaceFile(p.receiptPath(), append(b, '\n'))
}

func replaceFile(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	temporary := path + ".new"
	if err := os.WriteFile(temporary, content, 0o644); err != nil {
		return errors.Join(err, os.Remove(temporary))
	}
	return os.Rename(temporary, path)
}

// unit copies a service file with the paths of this installation.
func (p *Place) unit(version string, u Unit) error {
	b, err := os.ReadFile(filepath.Join(version, u.From))
	if err != nil {
		return err
	}
	text := strings.NewReplacer("@BINDIR@", filepath.Join(p.Prefix, "bin"),
		"@DOCDIR@", filepath.Join(p.Prefix, "share", "doc", "uma-serve"),
		"/usr/local/bin/uma-serve", filepath.Join(p.Prefix, "bin", "uma-serve")).Replace(string(b))
	return replaceFile(u.To, []byte(text))
}

// prune removes the versions that are neither in use nor kept for Rollback.
func (p *Place) prune() error {
	versions := filepath.Join(p.Root(), "versions")
	entries, err := os.ReadDir(versions)
	if err != nil {
		return err
	}
	keep := []string{p.target("current"), p.target("previous")}
	for _, e := range entries {
		if !slices.Contains(keep, e.Name()) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(versions, e.Name())))
		}
	}
	return err
}
