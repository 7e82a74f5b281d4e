//go:build !unix

package doctor

import (
	"io/fs"
	"os"
)

func canUse(string) error { return nil }

// canFill makes a file and removes it: what an access list allows shows only then.
func canFill(dir string) error {
	f, err := os.CreateTemp(dir, ".uma-doctor-*")
	if err != nil {
		return err
	}
	f.Close()
	return os.Remove(f.Name())
}

func uidOf(fs.FileInfo) int { return os.Getuid() }
