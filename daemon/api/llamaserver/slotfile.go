package llamaserver

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unicode"

	"github.com/uma-serve/uma-serve/daemon/api"
)

// Limits of --slot-save-path.
const (
	maxSlotFiles     = 256      // per owner
	maxSlotFileBytes = 64 << 20 // of one, which has about six bytes for each token
	maxFileName      = 200      // bytes
	slotFileVersion  = 1
)

// slotFile is a saved slot: the tokens of its conversation. Their KV cells are stored by the cache, under the tokens,
// and computed again if they are gone: no file can bring cells that were not computed here.
type slotFile struct {
	Version int     `json:"version"`
	Model   string  `json:"model"`
	Vocab   int     `json:"n_vocab"`
	Tokens  []int32 `json:"tokens"`
}

// checkFileName refuses names that are not plain: the file lies in the owner's folder, and is not hidden.
func checkFileName(name string) error {
	if name == "" || len(name) > maxFileName || name[0] == '.' || strings.ContainsAny(name, `/\:`) ||
		strings.ContainsFunc(name, unicode.IsControl) {
		return api.Refuse(fmt.Sprintf(`field "filename" is %.100q; it must be a name of 1…%d bytes without / \ and :, `+
			`and must not begin with a dot`, name, maxFileName))
	}
	return nil
}

// slotFolder opens the owner's folder below dir, and makes it if it is missing. The caller closes it.
func slotFolder(dir string, owner uint32) (*os.Root, error) {
	path := filepath.Join(dir, strconv.FormatUint(uint64(owner), 10))
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	return os.OpenRoot(path)
}

// writeSlotFile writes f under a name, whole or not at all, and returns its size.
func writeSlotFile(dir string, owner uint32, name string, f *slotFile) (bytes int, err error) {
	root, err := slotFolder(dir, owner)
	if err != nil {
		return 0, err
	}
	defer root.Close()
	if _, err := root.Lstat(name); errors.Is(err, fs.ErrNotExist) {
		list, err := fs.ReadDir(root.FS(), ".")
		if err != nil {
			return 0, err
		}
		if len(list) >= maxSlotFiles {
			return 0, api.Refuse(fmt.Sprintf("%d saved slots are here; delete some below --slot-save-path first",
				len(list)))
		}
	}
	text, err := json.Marshal(f)
	if err != nil {
		return 0, err
	}
	temporary := api.NewID(".")
	out, err := root.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	defer root.Remove(temporary) // removes the file after an error
	_, err = out.Write(text)
	if err = errors.Join(err, out.Sync(), out.Close()); err != nil {
		return 0, err
	}
	return len(text), root.Rename(temporary, name)
}

// readSlotFile reads a file of the owner's that was saved for this model, and returns its size.
func readSlotFile(dir string, owner uint32, name, model string, vocab int) (f *slotFile, bytes int, err error) {
	root, err := slotFolder(dir, owner)
	if err != nil {
		return nil, 0, err
	}
	defer root.Close()
	st, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, 0, api.Refuse(fmt.Sprintf("there is no saved slot %q", name))
	case err != nil:
		return nil, 0, err
	case !st.Mode().IsRegular() || st.Size() > maxSlotFileBytes:
		return nil, 0, api.Refuse(fmt.Sprintf("%q is no saved slot", name))
	}
	in, err := root.Open(name)
	if err != nil {
		return nil, 0, err
	}
	defer in.Close()
	text, err := io.ReadAll(io.LimitReader(in, maxSlotFileBytes))
	if err != nil {
		return nil, 0, err
	}
	f = new(slotFile)
	if json.Unmarshal(text, f) != nil || f.Version != slotFileVersion || len(f.Tokens) == 0 {
		return nil, 0, api.Refuse(fmt.Sprintf("%q is no saved slot", name))
	}
	if f.Model != model || f.Vocab != vocab {
		return nil, 0, api.Refuse(fmt.Sprintf("%q was saved for the model %.100q; this is %.100q", name, f.Model,
			model))
	}
	return f, len(text), nil
}
