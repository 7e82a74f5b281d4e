package download

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/uma-serve/uma-serve/models/pull"
)

// parts end the names of what a download keeps beside the place of a file until the file is whole.
var parts = []string{".part", ".state", ".lock"}

// Discard deletes what a canceled download has left in the models directory, and the folders that are empty then. Whole
// files stay.
func Discard(dir string, d *State) error {
	ref, err := pull.Parse(d.Name)
	if err != nil || d.Choice == nil {
		return err
	}
	root, err := os.OpenRoot(dir) // links out of it are not followed
	if err != nil {
		return err
	}
	defer root.Close()
	var errs []error
	for _, name := range d.Choice.Files {
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
