package download

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/uma-serve/uma-serve/models/pull"
)

// parts end the names of what a download keeps beside the place of a file until the file is whole.
var parts = []string{".part", ".state", ".lock"}

// Discard deletes what a canceled download has left in the models directory, and the folders that are empty then. Whole
// files stay. It deletes nothing while a download of the same files runs: what has arrived is also that one's. No
// download begins meanwhile.
func (m *Manager) Discard(dir string, canceled State) error {
	ref, err := pull.Parse(canceled.Name)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	choice := canceled.Choice
	for _, o := range m.list {
		if o.ID == canceled.ID {
			choice = o.Choice // the name may have been resolved since
		}
	}
	if choice == nil {
		return nil
	}
	for _, o := range m.list {
		if o.Status.Runs() && o.shares(ref.Folder(), choice.Files) {
			return failure(KindBusy, "a download of the same files runs as %s, which needs them", o.Name)
		}
	}
	root, err := os.OpenRoot(dir) // links out of it are not followed
	if err != nil {
		return err
	}
	defer root.Close()
	var errs []error
	for _, name := range choice.Files {
		path := filepath.Join(filepath.FromSlash(ref.Folder()), filepath.FromSlash(name))
		for _, part := range parts {
			if err := root.Remove(path + part); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
		for dir := filepath.Dir(path); dir != "." && root.Remove(dir) == nil; { // a folder that is not empty stays
			dir = filepath.Dir(dir)
		}
	}
	return errors.Join(errs...)
}

// shares reports whether a download may write to one of the files of a folder of the models directory.
func (d *download) shares(folder string, files []string) bool {
	ref, err := pull.Parse(d.Name)
	if err != nil || ref.Folder() != folder {
		return false
	}
	shared := func(file string) bool { return slices.Contains(files, file) }
	return d.Choice == nil || slices.ContainsFunc(d.Choice.Files, shared)
}

// Place returns the path of the first file of a download below the models directory dir, "" while it is not known.
func (s *State) Place(dir string) string {
	ref, err := pull.Parse(s.Name)
	if err != nil || s.Choice == nil || len(s.Choice.Files) == 0 {
		return ""
	}
	return filepath.Join(dir, filepath.FromSlash(ref.Folder()), filepath.FromSlash(s.Choice.Files[0]))
}
