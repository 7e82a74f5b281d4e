package release

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Remove deletes what Install has made: the paths of the receipt, the versions, and folders that are empty then. It
// returns what it could not remove. Folders of the user (models, caches, configuration) are the caller's.
func (p *Place) Remove() error {
	r, err := p.Receipt()
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range r.Paths {
		if !filepath.IsAbs(path) {
			continue
		}
		info, err := os.Lstat(path)
		if err == nil && (info.Mode()&fs.ModeSymlink != 0 || isShared(path)) && !p.mayReplace(path) {
			continue // replaced by another installation
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
		p.removeEmpty(filepath.Dir(path))
	}
	if len(errs) > 0 {
		return errors.Join(errs...) // the receipt stays, for another try
	}
	if err := os.RemoveAll(p.Root()); err != nil {
		return err
	}
	p.removeEmpty(filepath.Dir(p.Root()))
	return nil
}

// isShared reports whether Install has put a link at a path, and not a file.
func isShared(path string) bool {
	dir := filepath.ToSlash(filepath.Dir(path))
	return slices.ContainsFunc(shared, func(folder string) bool { return strings.HasSuffix(dir, "/"+folder) })
}

// common are folders that stay when they are empty: they are the system's or the user's.
var common = []string{"/", "/usr", "/usr/local", "/usr/local/bin", "/usr/local/lib", "/usr/local/share",
	"/usr/local/share/man", "/etc", "/opt"}

// removeEmpty removes a folder and those above it while they are empty, up to the prefix.
func (p *Place) removeEmpty(dir string) {
	for dir != p.Prefix && dir != p.Home && !slices.Contains(common, dir) && len(dir) > 1 {
		if os.Remove(dir) != nil {
			return
		}
		dir = filepath.Dir(dir)
	}
}
