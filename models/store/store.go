// Package store finds the models that are on this machine and resolves their names. It looks into five places: our own
// models directory, Hugging Face's hub cache, llama.cpp's cache, LM Studio's folder, and ollama's blobs and manifests.
// It reads them only; of the own directory it removes models and keeps the file of aliases.
//
// Other programs write those places, and anyone may have written what lies in them: names, links, manifests and headers
// are taken for hostile. What is wrong with one file is a [Problem] in the list, never an error for the rest.
//
// Finding (Scan) reads folders, manifests and the first bytes of files. A model's header is read when a list of models
// (Catalog.List) or the engine needs it.
//
// name.go has the names of a model, places.go the folders, resolve.go what a name means.
package store

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Place is the source of a model, as lists name it.
type Place string

// The places, in the order in which they are asked for a name.
const (
	Own      Place = "uma-serve"
	Hub      Place = "huggingface"
	LlamaCpp Place = "llama.cpp"
	LMStudio Place = "lmstudio"
	InOllama Place = "ollama"
)

// Model is a model that was found. Its files are GGUF by their first bytes; nothing else was looked at.
type Model struct {
	Name Name // what finds it and nothing else in its place
	Repo Name // the repository it is one of, without a tag; other models may have the same
	Place
	Files     []string  // in order; the first is the one to open
	Bytes     int64     // of all files
	Modified  time.Time // the newest file's
	Digest    string    // "sha256:…" where the place tells it, of the first file
	Projector string    // the file that reads images for it, "" = none
	// Incomplete says which files are missing; "" = none.
	Incomplete string
	Recipe     *Recipe // of a model that was made of another one; nil: it is a file

	id     string  // what ID returns
	layers *layers // of a model of ollama
}

// ID returns the model's name as lists show it and as Lookup finds it.
func (m *Model) ID() string { return m.id }

// Path returns the file to open.
func (m *Model) Path() string { return m.Files[0] }

// Problem is something in a place that cannot be used, and why.
type Problem struct {
	Place Place  `json:"place"`
	Path  string `json:"path"`
	Why   string `json:"why"`
}

// Catalog has the models and problems of one Scan.
type Catalog struct {
	Models   []Model           // those that were made of others, then by place and name
	Problems []Problem         // at most maxProblems, and one that counts the others
	Aliases  map[string]string // name → target, of the own directory's file

	store   *Store
	once    sync.Once
	aliased map[string][]string // aliases by the id and path of their model
}

// Store looks into the places. It is safe for concurrent use.
type Store struct {
	dir    string
	getenv func(string) string

	mu    sync.Mutex
	known map[string]facts // by path, of files whose header was read
}

// facts is a cached header of a file, valid while the file has this size and time.
type facts struct {
	size     int64
	modified time.Time
	header   Header
	err      error
}

// New returns a Store with dir as the own models directory; "" = DefaultDir. getenv names the places of the other
// programs, as os.Getenv does; nil = os.Getenv.
func New(dir string, getenv func(string) string) *Store {
	if getenv == nil {
		getenv = os.Getenv
	}
	if dir == "" {
		dir = DefaultDir(getenv)
	}
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	return &Store{dir: dir, getenv: getenv, known: map[string]facts{}}
}

// Dir returns the own models directory. It may not exist.
func (s *Store) Dir() string { return s.dir }

// Limits of a scan. A person has dozens of models; the limits keep a folder that was made to be endless from taking the
// memory and the time of the program that looks.
const (
	maxEntries  = 100_000 // of folders, in one place
	maxModels   = 20_000  // in one place
	maxDepth    = 12      // of folders
	maxProblems = 100
	maxManifest = 4 << 20 // bytes; llama.cpp's have a model's chat template in them
	maxSmall    = 1 << 20 // bytes of another file that is read whole
)

// Scan looks into every place. What cannot be read is a problem in the catalog; the only error is ctx's.
func (s *Store) Scan(ctx context.Context) (*Catalog, error) {
	c := &Catalog{store: s}
	var dropped int
	for _, r := range s.roots() {
		sc := &scan{ctx: ctx, root: r, seen: map[fileID]bool{}, left: maxEntries}
		sc.run()
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		slices.SortStableFunc(sc.models, func(a, b Model) int { return strings.Compare(a.ID(), b.ID()) })
		c.Models = append(c.Models, sc.models...)
		room := max(0, min(len(sc.problems), maxProblems-len(c.Problems)))
		c.Problems, dropped = append(c.Problems, sc.problems[:room]...), dropped+len(sc.problems)-room+sc.dropped
	}
	aliases, err := s.readAliases()
	if err != nil {
		c.Problems = append(c.Problems, Problem{Own, s.aliasFile(), err.Error()})
	}
	c.Aliases = aliases
	recipes, problems := s.readRecipes(ctx)
	c.addRecipes(recipes)
	c.Problems = append(c.Problems, problems[:min(len(problems), max(0, maxProblems-len(c.Problems)))]...)
	if dropped > 0 {
		c.Problems = append(c.Problems, Problem{Why: fmt.Sprintf("%d more files cannot be used", dropped)})
	}
	return c, nil
}

// scan is the search of one root.
type scan struct {
	ctx  context.Context
	root root
	uid  uint32 // the owner of the root
	seen map[fileID]bool
	left int // entries that may still be read
	over bool

	models   []Model
	problems []Problem
	dropped  int // problems beyond maxProblems
}

func (s *scan) run() {
	st, err := os.Stat(s.root.path)
	switch {
	case os.IsNotExist(err):
		return
	case err != nil:
		s.problem(s.root.path, "%s", reason(err))
		return
	case !st.IsDir():
		s.problem(s.root.path, "it is no folder")
		return
	}
	s.uid = owner(st)
	// Two names of one folder, such as a link from LM Studio's to the own directory, are one place.
	if real, err := filepath.EvalSymlinks(s.root.path); err == nil {
		s.root.path = real
	}
	s.root.find(s)
}

// problem notes what is wrong with path.
func (s *scan) problem(path, format string, a ...any) {
	if len(s.problems) >= maxProblems {
		s.dropped++
		return
	}
	s.problems = append(s.problems, Problem{s.root.place, path, fmt.Sprintf(format, a...)})
}

// add takes a model, up to the limit.
func (s *scan) add(m Model) {
	if len(s.models) >= maxModels {
		if !s.over {
			s.over = true
			s.problem(s.root.path, "it has more than %d models; the others are not listed", maxModels)
		}
		return
	}
	m.Place, m.id = s.root.place, m.Name.short()
	s.models = append(s.models, m)
}
