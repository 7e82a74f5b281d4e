package store

import (
	"path"
	"strings"
)

// findLMStudio reads LM Studio's folder, which has the repositories of Hugging Face below their publishers:
// PUBLISHER/REPO/…/FILE.gguf (lmstudio.ai/docs/app/basics/import-model).
func findLMStudio(s *scan) {
	s.folders(func(dirs []string) (repo Name, depth int) {
		if len(dirs) < 2 {
			return Name{}, 0
		}
		return Name{Host: HuggingFace, Path: word(dirs[0]) + "/" + word(dirs[1])}, 2
	})
}

// findOwn reads the models directory. What is downloaded lies below its host, HOST/OWNER/MODEL/…/FILE.gguf, on ollama
// and other registries with the tag as the file's name. What people put there is named by its folders, or, in the
// directory itself, by its file.
func findOwn(s *scan) {
	s.folders(func(dirs []string) (repo Name, depth int) {
		switch host := hosts[strings.ToLower(first(dirs))]; {
		case len(dirs) == 0:
			return Name{}, 0
		case len(dirs) >= 3 && (host != "" || strings.ContainsAny(dirs[0], ".:")):
			if host == "" {
				host = strings.ToLower(dirs[0])
			}
			owner, model := word(dirs[1]), word(dirs[2])
			if host == Ollama && owner == "library" {
				return Name{Host: host, Path: model}, 3
			}
			return Name{Host: host, Path: owner + "/" + model}, 3
		case len(dirs) == 1:
			return Name{Path: word(dirs[0])}, 1
		}
		return Name{Path: word(dirs[0]) + "/" + word(dirs[1])}, 2
	})
}

// folders adds the models below the root by repository. repoOf says which repository the files in a folder, given by
// its parts, belong to, and how many of the parts are its name; depth 0: the files' names are the models' names.
func (s *scan) folders(repoOf func(dirs []string) (repo Name, depth int)) {
	repos := map[Name][]file{}
	var order []Name
	alone := map[string]file{}
	s.walk(s.root.path, func(f file) {
		if !isGGUF(f.rel) {
			return
		}
		parts := strings.Split(f.rel, "/")
		repo, depth := repoOf(parts[:len(parts)-1])
		if depth == 0 {
			alone[f.rel] = f
			return
		}
		f.rel = path.Join(parts[depth:]...)
		if repo.Host != "" && repo.Host != HuggingFace { // of a registry: a tag is one model
			if kindOf(f.rel) != aModel {
				return
			}
			repo.Tag = word(stem(f.rel))
			if len(parts) > depth+1 {
				repo.Tag = word(parts[depth])
			}
		}
		if repos[repo] == nil {
			order = append(order, repo)
		}
		repos[repo] = append(repos[repo], f)
	})
	for _, repo := range order {
		s.group(repo, repos[repo])
	}
	s.stems(alone)
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}
