package store

import (
	"encoding/json"
	"path"
	"path/filepath"
	"strings"

	"github.com/uma-serve/uma-serve/model/gguf"
)

// findLlamaCpp reads llama.cpp's cache. Until 2026 it was one flat folder: ORG_REPO_FILE.gguf, where FILE's slashes are
// "_" as well, and for -hf ORG/REPO:TAG a file manifest=ORG=REPO=TAG.json, which says the FILE. Files that --model-url
// and Docker names brought have no manifest. Since then the folder is in the layout of Hugging Face's hub.
func findLlamaCpp(s *scan) {
	files := map[string]file{}
	var manifests []file
	entries, _ := s.readDir(s.root.path)
	hub := false
	for _, e := range entries {
		hub = hub || strings.HasPrefix(e.Name(), "models--")
	}
	s.walkBelow(s.root.path, "", 0, func(f file) {
		files[f.rel] = f
		if strings.HasPrefix(f.rel, "manifest=") && strings.HasSuffix(f.rel, ".json") {
			manifests = append(manifests, f)
		}
	})
	repos := map[Name][]file{}
	for _, m := range manifests {
		s.llamaManifest(m, files, repos)
	}
	for name, list := range repos {
		for _, f := range list {
			delete(files, flatName(name, f.rel))
		}
		s.group(name, list)
	}
	s.stems(files)
	if hub {
		findHub(s)
	}
}

// llamaManifest adds the files that a manifest names, as they are called in the repository.
func (s *scan) llamaManifest(m file, files map[string]file, repos map[Name][]file) {
	parts := strings.Split(strings.TrimSuffix(m.rel, ".json"), "=")
	if len(parts) != 4 {
		s.problem(m.path, "its name is not manifest=ORG=REPO=TAG.json")
		return
	}
	name, err := ParseName(HuggingFace + "/" + parts[1] + "/" + parts[2])
	if err != nil || name.Tag != "" {
		s.problem(m.path, "its name is not that of a repository")
		return
	}
	text, err := readSmall(m.path, maxManifest)
	if err != nil {
		s.problem(m.path, "%s", reason(err))
		return
	}
	type named struct {
		File string `json:"rfilename"`
	}
	var doc struct {
		GGUF   named `json:"ggufFile"`
		MMProj named `json:"mmprojFile"`
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		s.problem(m.path, "it is not a manifest: %v", err)
		return
	}
	for _, rel := range []string{doc.GGUF.File, doc.MMProj.File} {
		if rel == "" {
			continue
		}
		if !filepath.IsLocal(rel) || path.Clean(rel) != rel || !isGGUF(rel) {
			s.problem(m.path, "it names %.100q, which is no GGUF file of a repository", rel)
			continue
		}
		of := []string{rel}
		if prefix, _, count, ok := gguf.Shard(rel); ok {
			of = nil
			for no := 1; no <= min(count, maxFiles); no++ {
				of = append(of, gguf.ShardName(prefix, no, count))
			}
		}
		found := false
		for _, rel := range of {
			f, ok := files[flatName(name, rel)]
			found = found || ok
			if f.rel = rel; ok && !hasRel(repos[name], rel) {
				repos[name] = append(repos[name], f)
			}
		}
		if !found && rel == doc.GGUF.File {
			s.problem(m.path, "the file that it names is missing: %s", flatName(name, rel))
		}
	}
}

// maxFiles is the limit on the shards of a split model that are looked for.
const maxFiles = 1024

func hasRel(files []file, rel string) bool {
	for _, f := range files {
		if f.rel == rel {
			return true
		}
	}
	return false
}

// flatName returns a file of a repository in the flat folder.
func flatName(repo Name, rel string) string {
	return strings.ReplaceAll(repo.Path+"_"+rel, "/", "_")
}

// stems adds models that are named by their files alone.
func (s *scan) stems(files map[string]file) {
	byStem := map[string][]file{}
	for rel, f := range files {
		if isGGUF(rel) {
			if kindOf(rel) == aProjector {
				continue // there is nothing that says whose
			}
			byStem[word(stem(rel))] = append(byStem[word(stem(rel))], f)
		}
	}
	for name, list := range byStem {
		s.group(Name{Path: name}, list)
	}
}
