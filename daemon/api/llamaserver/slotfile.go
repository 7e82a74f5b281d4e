package llamaserver

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/uma-serve/uma-serve/daemon/api"
)

// Limits of --slot-save-path.
const (
	maxSlotFiles     = 256      // per owner
	maxSlotFileBytes = 64 << 20 // that are read of one: llama-server's cells are behind its tokens
	maxFileName      = 200      // bytes
	slotFileVersion  = 1
)

// slotFile is a saved slot: the tokens of its conversation. Their KV cells are stored by the cache, under the tokens,
// and computed again if they are gone: no file can bring cells that were not computed here.
type slotFile struct {
	Version int     `json:"version"`
	Model   string  `json:"model"` // "": not known, for llama-server wrote the file
	Vocab   int     `json:"n_vocab"`
	Tokens  []int32 `json:"tokens,omitempty"`
}

// A file has llama-server's form, in words of four bytes, little endian: stateMagic, stateVersion, the number of words
// of the token list, and the list. That is the tokens alone, as older servers write it, or packedMark, packedVersion,
// the number of tokens, the tokens, and the number of images. llama-server's cells follow, which are not read, or here
// slotMark and the model as JSON. Files that begin with a brace are of older versions: all of it as JSON.
const (
	stateMagic    = 0x67677371 // ggsq
	stateVersion  = 3
	packedMark    = ^uint32(0)
	packedVersion = 1
	slotMark      = "uma-slot"
)

// append adds the file's bytes to b.
func (f *slotFile) append(b []byte) ([]byte, error) {
	n := uint32(len(f.Tokens))
	for _, word := range []uint32{stateMagic, stateVersion, n + 4, packedMark, packedVersion, n} {
		b = binary.LittleEndian.AppendUint32(b, word)
	}
	for _, t := range f.Tokens {
		b = binary.LittleEndian.AppendUint32(b, uint32(t))
	}
	b = binary.LittleEndian.AppendUint32(b, 0)
	rest, err := json.Marshal(&slotFile{Version: f.Version, Model: f.Model, Vocab: f.Vocab})
	return append(append(b, slotMark...), rest...), err
}

// errSlotFile is the error of a file that is no saved slot.
var errSlotFile = errors.New("it is no saved slot")

// parseSlotFile reads a file's bytes.
func parseSlotFile(b []byte) (*slotFile, error) {
	f := new(slotFile)
	if len(b) > 0 && b[0] == '{' {
		if json.Unmarshal(b, f) != nil || f.Version != slotFileVersion || len(f.Tokens) == 0 {
			return nil, errSlotFile
		}
		return f, nil
	}
	word := func(i int) uint32 { return binary.LittleEndian.Uint32(b[4*i:]) }
	if len(b) < 16 || word(0) != stateMagic || word(1) != stateVersion || word(2) == 0 ||
		int64(word(2)) > int64(len(b)/4-3) {
		return nil, errSlotFile
	}
	at, end := 3, 3+int(word(2))
	if word(at) == packedMark {
		switch {
		case end-at < 4 || word(at+1) != packedVersion || int64(word(at+2)) > int64(end-at-4):
			return nil, errSlotFile
		case word(at+3+int(word(at+2))) > 0:
			return nil, errors.New("it is of a conversation with images, which are not restored")
		}
		at, end = at+3, at+3+int(word(at+2))
	}
	for i := at; i < end; i++ {
		f.Tokens = append(f.Tokens, int32(word(i)))
	}
	if rest, own := bytes.CutPrefix(b[4*(3+int(word(2))):], []byte(slotMark)); own {
		if json.Unmarshal(rest, f) != nil || f.Version != slotFileVersion {
			return nil, errSlotFile
		}
	}
	if len(f.Tokens) == 0 {
		return nil, errSlotFile
	}
	return f, nil
}

// checkFileName refuses names that are not plain: the file lies in the owner's folder, and is not hidden.
func checkFileName(name string) error {
	if name == "" || len(name) > maxFileName || name[0] == '.' || strings.ContainsAny(name, `/\:`) ||
		strings.ContainsFunc(name, unicode.IsControl) {
		return api.Refusef(`field "filename" is %.100q; it must be a name of 1…%d bytes without / \ and :, and must `+
			`not begin with a dot`, name, maxFileName)
	}
	return nil
}

// slotFolder opens the folder of an owner's file, and makes it if it is missing. The caller closes it. Files of the
// server's own user lie in dir itself, as llama-server's do, those of other owners in a folder below it.
func slotFolder(dir string, owner uint32, name string) (*os.Root, error) {
	path := filepath.Join(dir, strconv.FormatUint(uint64(owner), 10))
	if _, err := strconv.ParseUint(name, 10, 32); err != nil && owner == uint32(os.Geteuid()) {
		if _, err := os.Lstat(filepath.Join(path, name)); err != nil { // none that an older version has written
			path = dir
		}
	}
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, err
	}
	return os.OpenRoot(path)
}

// writeSlotFile writes f under a name, whole or not at all, and returns its size.
func writeSlotFile(dir string, owner uint32, name string, f *slotFile) (bytes int, err error) {
	root, err := slotFolder(dir, owner, name)
	if err != nil {
		return 0, err
	}
	defer root.Close()
	if _, err := root.Lstat(name); errors.Is(err, fs.ErrNotExist) {
		list, err := fs.ReadDir(root.FS(), ".")
		if err != nil {
			return 0, err
		}
		list = slices.DeleteFunc(list, fs.DirEntry.IsDir)
		if len(list) >= maxSlotFiles {
			return 0, api.Refusef("%d saved slots are here; delete some below --slot-save-path first", len(list))
		}
	}
	text, err := f.append(nil)
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
	root, err := slotFolder(dir, owner, name)
	if err != nil {
		return nil, 0, err
	}
	defer root.Close()
	st, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, 0, api.Refusef("there is no saved slot %q", name)
	case err != nil:
		return nil, 0, err
	case !st.Mode().IsRegular():
		return nil, 0, api.Refusef("%q is no saved slot", name)
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
	if f, err = parseSlotFile(text); err != nil {
		return nil, 0, api.Refusef("%q cannot be restored: %v", name, err)
	}
	if f.Model != "" && (f.Model != model || f.Vocab != vocab) {
		return nil, 0, api.Refusef("%q was saved for the model %.100q; this is %.100q", name, f.Model, model)
	}
	if slices.ContainsFunc(f.Tokens, func(t int32) bool { return t < 0 || int(t) >= vocab }) {
		return nil, 0, api.Refusef("%q has tokens that this model does not know: it is another model's", name)
	}
	return f, len(text), nil
}
