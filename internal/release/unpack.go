package release

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
)

// Limits of an archive's content.
const (
	maxEntries       = 20_000
	maxUnpackedBytes = 4 << 30
)

// unpack writes the content of an archive, which has one folder at its top, into the folder dir without that one. Only
// files and folders are allowed. Files are 0755 where the owner may execute them, else 0644.
func unpack(r io.Reader, dir string) error {
	z, err := gzip.NewReader(r)
	if err != nil {
		return fmt.Errorf("it is no gzip file: %w", err)
	}
	defer z.Close()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	var entries int
	left := int64(maxUnpackedBytes)
	in := tar.NewReader(z)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("it is damaged: %w", err)
		}
		if entries++; entries > maxEntries {
			return fmt.Errorf("it has more than %d entries", maxEntries)
		}
		name := strings.TrimSuffix(h.Name, "/")
		if name != path.Clean(name) || path.IsAbs(name) || name == ".." || strings.HasPrefix(name, "../") {
			return fmt.Errorf("it has an entry %.100q, which leads out of its folder", h.Name)
		}
		_, inside, _ := strings.Cut(name, "/")
		switch h.Typeflag {
		case tar.TypeDir:
			if inside != "" {
				err = makeFolders(root, inside)
			}
		case tar.TypeReg:
			if left -= h.Size; left < 0 {
				return fmt.Errorf("its content has more than %d bytes", int64(maxUnpackedBytes))
			}
			if inside == "" {
				return fmt.Errorf("it has a file %.100q beside its folder", h.Name)
			}
			err = unpackFile(root, inside, in, h)
		default:
			return fmt.Errorf("it has an entry %.100q that is neither file nor folder", h.Name)
		}
		if err != nil {
			return err
		}
	}
	// The rest of the stream holds gzip's sum.
	if _, err := io.Copy(io.Discard, io.LimitReader(z, 1<<20)); err != nil {
		return fmt.Errorf("it is damaged: %w", err)
	}
	return nil
}

// makeFolders makes a folder and those above it that all users may enter, whatever the umask.
func makeFolders(root *os.Root, name string) error {
	if name == "." {
		return nil
	}
	err := root.Mkdir(name, 0o755)
	if errors.Is(err, fs.ErrNotExist) {
		if err = makeFolders(root, path.Dir(name)); err == nil {
			err = root.Mkdir(name, 0o755)
		}
	}
	if errors.Is(err, fs.ErrExist) {
		return nil // or a file, in which nothing can be made
	}
	if err == nil {
		err = root.Chmod(name, 0o755)
	}
	return err
}

func unpackFile(root *os.Root, name string, in io.Reader, h *tar.Header) error {
	mode := os.FileMode(0o644)
	if h.Mode&0o100 != 0 {
		mode = 0o755
	}
	if err := makeFolders(root, path.Dir(name)); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, in)
	if err == nil {
		err = f.Chmod(mode) // whatever the umask
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
