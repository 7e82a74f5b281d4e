package store

import (
	"fmt"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/uma-serve/uma-serve/model/gguf"
)

// quantName is a quantisation at the end of a file's name without .gguf, or the name of a folder: Q4_K_M, IQ2_XXS, F16,
// BF16, MXFP4, and UD-Q4_K_XL, a mixture of its publisher's.
var quantName = regexp.MustCompile(
	`(?i)(?:^|[-._])((?:UD-)?(?:I?Q[1-8](?:_[A-Z0-9]+)*|TQ[12]_0|BF16|FP?16|FP?32|MXFP4(?:_[A-Z]+)*|NVFP4))$`)

// QuantOf returns the quantisation that the path of a GGUF file below a repository names, in upper case; "" = none.
func QuantOf(rel string) string {
	stem := rel[:len(rel)-len(path.Ext(rel))]
	if prefix, _, _, ok := gguf.Shard(rel); ok {
		stem = prefix
	}
	for _, text := range []string{path.Base(stem), path.Base(path.Dir(stem))} {
		if m := quantName.FindStringSubmatch(text); m != nil {
			return strings.ToUpper(m[1])
		}
	}
	return ""
}

// kind is the role of a GGUF file by its name, by the rules of llama.cpp's download.cpp.
type kind int

const (
	aModel     kind = iota
	aProjector      // reads images for a model
	noModel         // draft heads, importance matrices
)

// IsModel reports whether a GGUF file is a model by its name: no projector, draft head or importance matrix.
func IsModel(rel string) bool { return kindOf(rel) == aModel }

// IsProjector reports whether a GGUF file of that name reads images for a model.
func IsProjector(rel string) bool { return kindOf(rel) == aProjector }

func kindOf(rel string) kind {
	name := strings.ToLower(path.Base(rel))
	switch {
	case strings.Contains(name, "mmproj"):
		return aProjector
	case strings.Contains(name, "imatrix"):
		return noModel
	}
	for _, prefix := range []string{"mtp-", "eagle3-", "dflash-", "dspark-"} {
		if strings.HasPrefix(name, prefix) {
			return noModel
		}
	}
	return aModel
}

// group adds the models among files, which are those of one repository: its GGUF files, those of a split model as one.
func (s *scan) group(repo Name, files []file) {
	var models []Model
	var rels []string // of the models' first files
	var projectors []file
	splits := map[string]map[int]file{} // by prefix and count: the files by number
	for _, f := range files {
		if !isGGUF(f.rel) {
			continue
		}
		k := kindOf(f.rel)
		if k == noModel || !s.usable(f) {
			continue
		}
		if k == aProjector {
			projectors = append(projectors, f)
			continue
		}
		prefix, no, count, split := gguf.Shard(f.rel)
		if !split {
			models, rels = append(models, modelOf(f)), append(rels, f.rel)
			continue
		}
		key := gguf.ShardName(prefix, 1, count)
		if splits[key] == nil {
			splits[key] = map[int]file{}
		}
		splits[key][no] = f
	}
	for key, shards := range splits {
		_, _, count, _ := gguf.Shard(key)
		m, rel := joinShards(shards, count)
		models, rels = append(models, m), append(rels, rel)
	}
	tags := map[string]int{}
	for _, rel := range rels {
		tags[QuantOf(rel)]++
	}
	for i := range models {
		m := &models[i]
		m.Repo, m.Name = Name{Host: repo.Host, Path: repo.Path}, repo
		if tag := QuantOf(rels[i]); repo.Tag != "" {
			// of a registry, whose tags are names
		} else if tag != "" && tags[tag] == 1 {
			m.Name.Tag = tag
		} else if len(models) > 1 || strings.Contains(repo.Path, "/") {
			m.Name.Path = repo.Path + "/" + wordPath(rels[i])
		}
		m.Projector = projectorFor(rels[i], projectors)
		s.add(*m)
	}
}

func modelOf(f file) Model {
	m := Model{Files: []string{f.path}, Bytes: f.size, Modified: f.modified}
	if hash := strings.ToLower(f.target); isHash(hash) { // Hugging Face's blobs are named by their SHA-256
		m.Digest = "sha256:" + hash
	}
	return m
}

// joinShards makes one model of the files of a split one, by their numbers from 1 to count.
func joinShards(shards map[int]file, count int) (m Model, rel string) {
	var missing []string
	for no := 1; no <= count; no++ {
		f, ok := shards[no]
		switch {
		case !ok && len(missing) < 5:
			missing = append(missing, fmt.Sprint(no))
			continue
		case !ok:
			continue
		}
		if len(m.Files) == 0 {
			m, rel = modelOf(f), f.rel
			m.Bytes = 0
		} else {
			m.Files = append(m.Files, f.path)
		}
		m.Bytes += f.size
		if f.modified.After(m.Modified) {
			m.Modified = f.modified
		}
	}
	if n := count - len(m.Files); n > 0 {
		which := strings.Join(missing, ", ")
		if n > len(missing) {
			which += ", …"
		}
		m.Incomplete = fmt.Sprintf("%d of %d files are missing (%s)", n, count, which)
		m.Digest = ""
	}
	return m, rel
}

// projectorFor returns the projector in the folder of a model, or in the nearest above it; "" = none.
func projectorFor(rel string, projectors []file) string {
	for dir := path.Dir(rel); ; dir = path.Dir(dir) {
		at := slices.IndexFunc(projectors, func(f file) bool { return path.Dir(f.rel) == dir })
		if at >= 0 {
			return projectors[at].path
		}
		if dir == "." || dir == "/" {
			return ""
		}
	}
}

// isHash reports whether s is a SHA-256 in hexadecimal.
func isHash(s string) bool { return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == "" }

// word is text as a part of a name: what may not be in one is "-".
func word(text string) string {
	b := []byte(text)
	for i, c := range b {
		if !isWord(c) && c != '.' && (c != '-' || i == 0) {
			b[i] = '-'
		}
	}
	out := strings.TrimLeft(string(b[:min(len(b), maxPartBytes)]), "-.")
	if out == "" {
		return "_"
	}
	return out
}

// wordPath is word for each part of a path of a GGUF file.
func wordPath(rel string) string {
	parts := strings.Split(rel[:len(rel)-len(".gguf")], "/")
	for i := range parts {
		parts[i] = word(parts[i])
	}
	last := parts[len(parts)-1]
	parts[len(parts)-1] = last[:min(len(last), maxPartBytes-len(".gguf"))] + ".gguf"
	return strings.Join(parts, "/")
}

// stem returns a file's name without .gguf and without a split file's number.
func stem(rel string) string {
	name := path.Base(rel)
	if prefix, _, _, ok := gguf.Shard(name); ok {
		return prefix
	}
	return name[:len(name)-len(filepath.Ext(name))]
}
