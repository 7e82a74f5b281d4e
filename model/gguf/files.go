package gguf

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"strconv"

	"github.com/uma-serve/uma-serve/internal/cli/clierr"
)

// Inspect reads the header of the model whose file, of several the first, is at path. The error wraps ErrInvalid, or is
// the file system's.
func Inspect(path string) (Info, error) { return inspect(path, false) }

// Brief is Inspect without what it learns of the vocabulary and the chat template: Special, Template, DefaultTemplate
// and Think are empty. It costs a third of the time, for lists of many models.
func Brief(path string) (Info, error) { return inspect(path, true) }

func inspect(path string, brief bool) (Info, error) {
	h, err := openHeader(path, brief)
	if err != nil {
		return Info{}, err
	}
	files, err := h.readShards(path)
	if err != nil {
		return Info{}, err
	}
	info, err := h.info()
	if err != nil {
		return Info{}, fmt.Errorf("%s: %w", path, err)
	}
	info.Path, info.Files = path, files
	return info, nil
}

// openHeader reads the header of one file.
func openHeader(path string, brief bool) (*header, error) {
	// Check before opening: opening a named pipe waits for a writer, and opening a device may have side effects.
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if err := mustBeFile(path, st.Mode()); err != nil {
		return nil, err
	}
	f, err := openRegular(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if st, err = f.Stat(); err != nil {
		return nil, err
	}
	if err := mustBeFile(path, st.Mode()); err != nil { // it was replaced meanwhile
		return nil, err
	}
	h, err := readHeader(f, st.Size(), brief)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return h, nil
}

// mustBeFile returns an error that names the kind of file unless the file is regular.
func mustBeFile(path string, m fs.FileMode) error {
	kind := clierr.Kind(m)
	if kind == "" {
		return nil
	}
	name := ""
	if m.IsDir() {
		name = "; name a .gguf file in it"
	}
	return fmt.Errorf("%s: %w: it is %s%s", path, ErrInvalid, kind, name)
}

// Read is Inspect for an open file of size bytes that is a model alone.
func Read(r io.Reader, size int64) (Info, error) {
	h, err := readHeader(r, size, false)
	if err != nil {
		return Info{}, err
	}
	return h.info()
}

// maxFiles is far above the number of files that a model is split over.
const maxFiles = 1024

// splitName is the name of a file of a split model, as llama.cpp's gguf-split writes it and as llama.cpp finds the
// others.
var splitName = regexp.MustCompile(`^(.+)-(\d{5})-of-(\d{5})\.gguf$`)

// Shard splits the name of one file of a split model: the name's beginning, which file it is (1 = the first) and of how
// many. ok is false for a model of one file.
func Shard(name string) (prefix string, no, count int, ok bool) {
	m := splitName.FindStringSubmatch(name)
	if m == nil {
		return "", 0, 0, false
	}
	no, _ = strconv.Atoi(m[2]) // five digits
	count, _ = strconv.Atoi(m[3])
	return m[1], no, count, no >= 1 && no <= count
}

// ShardName returns the name that Shard splits.
func ShardName(prefix string, no, count int) string {
	return fmt.Sprintf("%s-%05d-of-%05d.gguf", prefix, no, count)
}

// readShards reads the headers of the further files of a split model into h, the first one's, and returns the paths of
// all. llama.cpp opens the further files by itself, and trusts them as it trusts the first.
func (h *header) readShards(path string) (files []string, err error) {
	fail := func(format string, a ...any) ([]string, error) {
		return nil, fmt.Errorf("%s: %w: %s", path, ErrInvalid, fmt.Sprintf(format, a...))
	}
	count := h.int("split.count")
	if count <= 1 {
		return []string{path}, nil
	}
	prefix, no, of, ok := Shard(path)
	switch {
	case count > maxFiles:
		return fail("split.count is %d, the limit is %d files", count, maxFiles)
	case !ok || int64(of) != count:
		return fail("it is one of %d files: their names must end in -00001-of-%05d.gguf and so on", count, count)
	case h.int("split.no") != int64(no)-1:
		return fail("split.no is %d, but its name says that it is file %d of %d", h.int("split.no"), no, count)
	case no != 1:
		return fail("it is file %d of %d: name the first, %s", no, count, ShardName(prefix, 1, of))
	}
	files = append(files, path)
	for no := 2; no <= of; no++ {
		shard := ShardName(prefix, no, of)
		p, err := openHeader(shard, true)
		switch {
		case os.IsNotExist(err):
			return fail("file %d of %d is missing: %s", no, of, shard)
		case err != nil:
			return nil, err
		case p.int("split.no") != int64(no)-1 || p.int("split.count") != count:
			return nil, fmt.Errorf("%s: %w: split.no is %d and split.count is %d, want %d and %d", shard, ErrInvalid,
				p.int("split.no"), p.int("split.count"), no-1, count)
		case len(h.tensors)+len(p.tensors) > maxTensors:
			return fail("tensor count of its files is above the limit of %d", maxTensors)
		}
		files = append(files, shard)
		h.tensors = append(h.tensors, p.tensors...)
		h.size += p.size
	}
	return files, nil
}

// fileTypes are llama.cpp's names of general.file_type (enum llama_ftype), as files are named after them.
var fileTypes = map[int64]string{
	0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M",
	13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS",
	21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S",
	29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4",
}

// fileType returns the dominant quantisation of the weights: the one in the header, else the type with most bytes.
func (h *header) fileType(mix []Quantisation) string {
	if n, ok := h.kv["general.file_type"].(int64); ok && fileTypes[n] != "" {
		return fileTypes[n]
	}
	if len(mix) > 0 {
		return mix[0].Type
	}
	return ""
}

// Projector says whether a file that makes embeddings (mmproj) is for images and for sounds.
func Projector(path string) (sees, hears bool, err error) {
	h, err := openHeader(path, true)
	if err != nil {
		return false, false, err
	}
	sees, _ = h.kv["clip.has_vision_encoder"].(bool)
	hears, _ = h.kv["clip.has_audio_encoder"].(bool)
	return sees, hears, nil
}
