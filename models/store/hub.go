package store

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// findHub reads a cache in the layout of Hugging Face's hub (huggingface.co/docs/hub/local-cache):
//
//	models--ORG--REPO/refs/main           the commit that main was when it was last asked for
//	models--ORG--REPO/snapshots/COMMIT/…  the files, as links into blobs
//	models--ORG--REPO/blobs/HASH          SHA-256 of large files, git's hash of small ones
func findHub(s *scan) {
	entries, _ := s.readDir(s.root.path)
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), "models--")
		// "--" stands for the slash; repositories cannot have it in their names.
		org, repo, two := strings.Cut(rest, "--")
		if !ok || !two {
			continue // data sets, locks, and repositories without an owner, which are older than GGUF
		}
		name, err := ParseName(HuggingFace + "/" + org + "/" + repo)
		if err != nil || name.Tag != "" {
			s.problem(filepath.Join(s.root.path, e.Name()), "its name is not that of a repository")
			continue
		}
		s.hubRepo(name, filepath.Join(s.root.path, e.Name()))
	}
}

// hubRepo adds the models of a repository: of each file the version that is in the snapshot of main, else in another.
func (s *scan) hubRepo(name Name, dir string) {
	var files []file
	have := map[string]bool{}
	for _, commit := range s.snapshots(dir) {
		s.walk(filepath.Join(dir, "snapshots", commit), func(f file) {
			if !have[f.rel] {
				files = append(files, f)
			}
		})
		for _, f := range files {
			have[f.rel] = true
		}
	}
	s.group(name, files)
}

// snapshots returns the names of a repository's snapshots: main's, those of other refs, then the newest.
func (s *scan) snapshots(dir string) (commits []string) {
	entries, err := os.ReadDir(filepath.Join(dir, "snapshots"))
	if err != nil {
		if !os.IsNotExist(err) {
			s.problem(filepath.Join(dir, "snapshots"), "%s", reason(err))
		}
		return nil
	}
	if s.left -= len(entries); len(entries) > maxSnapshots {
		s.problem(dir, "it has %d snapshots; the first %d are looked at", len(entries), maxSnapshots)
		entries = entries[:maxSnapshots]
	}
	modified := map[string]int64{}
	for _, e := range entries {
		if st, err := e.Info(); err == nil && e.IsDir() {
			commits = append(commits, e.Name())
			modified[e.Name()] = st.ModTime().UnixNano()
		}
	}
	refs := map[string]int{} // commit → order
	if names, err := os.ReadDir(filepath.Join(dir, "refs")); err == nil {
		for i, e := range names[:min(len(names), maxSnapshots)] {
			commit, err := readSmall(filepath.Join(dir, "refs", e.Name()), 256)
			if err != nil {
				continue
			}
			order := i + 1
			if e.Name() == "main" {
				order = 0
			}
			c := strings.TrimSpace(string(commit))
			if old, ok := refs[c]; !ok || order < old {
				refs[c] = order
			}
		}
	}
	rank := func(c string) int {
		if order, ok := refs[c]; ok {
			return order
		}
		return maxSnapshots + 1
	}
	slices.SortStableFunc(commits, func(a, b string) int {
		if d := rank(a) - rank(b); d != 0 {
			return d
		}
		return int(min(max(modified[b]-modified[a], -1), 1))
	})
	return commits
}

// maxSnapshots is the limit on the versions of a repository that are read.
const maxSnapshots = 256
