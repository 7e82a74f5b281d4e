package store

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Recipe is a model that a request has made of another one: a name, and what holds in requests that do not say
// otherwise. It has no weights: those are the other model's. The models directory keeps it as a small file.
type Recipe struct {
	Version int       `json:"version"` // recipeVersion
	Name    string    `json:"name"`
	From    string    `json:"from"` // the name of a model as lists show it, or the digest of a blob (blob.go)
	Created time.Time `json:"created"`

	Template string   `json:"template,omitempty"` // of chats, in Jinja; "" = the other model's
	System   string   `json:"system,omitempty"`   // message of chats that have none
	Licenses []string `json:"licenses,omitempty"`
	// Parameters are ollama's parameters, as the request had them.
	Parameters json.RawMessage `json:"parameters,omitempty"`
	// Fields are the fields of a request that Parameters stand for, with their values.
	Fields json.RawMessage `json:"fields,omitempty"`
	// Options are the options of the engine that Parameters stand for, by name.
	Options map[string]string `json:"options,omitempty"`
}

const (
	recipeVersion = 1
	maxRecipes    = 1000
	maxRecipeName = 200 // bytes: the name becomes that of a file
)

// Plain reports whether the recipe is another name for a model and nothing more.
func (r *Recipe) Plain() bool {
	return r.Template == "" && r.System == "" && len(r.Fields) == 0 && len(r.Options) == 0
}

// recipeDir holds the recipes, one file each.
func (s *Store) recipeDir() string { return filepath.Join(s.dir, "created") }

// recipeFile returns the file of a recipe's name. Names have neither "+" nor "=".
func (s *Store) recipeFile(name string) string {
	file := strings.NewReplacer("/", "+", ":", "=").Replace(strings.ToLower(name))
	return filepath.Join(s.recipeDir(), file+".json")
}

// CheckRecipeName returns the error for a name that a recipe cannot have, which wraps ErrName.
func CheckRecipeName(name string) error {
	n, err := ParseName(name)
	switch {
	case err != nil:
		return err
	case n.Host != "":
		return fmt.Errorf("%.100q is %w for a model that is made here: it has a host", name, ErrName)
	case len(name) > maxRecipeName:
		return fmt.Errorf("%.100q is %w: it has %d bytes; the maximum is %d", name, ErrName, len(name), maxRecipeName)
	}
	return nil
}

// SetRecipe keeps a recipe; the error wraps ErrBlob when the blob that it is made of is gone. The file is replaced at
// once: after a crash it is the old or the new one.
func (s *Store) SetRecipe(r Recipe) error {
	if err := CheckRecipeName(r.Name); err != nil {
		return err
	}
	if isBlob(r.From) {
		// It goes with the last recipe that is made of it, which may have been deleted since this one was begun.
		if _, err := os.Stat(s.blobFile(r.From)); err != nil {
			return fmt.Errorf("%w: %s is not here any more; send it again", ErrBlob, r.From)
		}
	}
	r.Version = recipeVersion
	text, err := json.MarshalIndent(&r, "", "  ")
	if err != nil {
		return err
	}
	if len(text) > maxManifest {
		return fmt.Errorf("template, system message, licence and parameters of %s take %d bytes; the maximum is %d",
			r.Name, len(text), maxManifest)
	}
	if err := os.MkdirAll(s.recipeDir(), 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(s.recipeDir())
	if err != nil {
		return err
	}
	path := s.recipeFile(r.Name)
	if len(entries) >= maxRecipes && !slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		return e.Name() == filepath.Base(path)
	}) {
		return fmt.Errorf("there are %d models that were made of others; the maximum is %d: delete some", len(entries),
			maxRecipes)
	}
	return replace(path, append(text, '\n'))
}

// readRecipes reads the recipes, sorted by name. What cannot be read is a problem.
func (s *Store) readRecipes(ctx context.Context) (list []Recipe, problems []Problem) {
	entries, err := os.ReadDir(s.recipeDir())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		problems = append(problems, Problem{Own, s.recipeDir(), reason(err)})
	}
	for _, e := range entries {
		if ctx.Err() != nil || len(list)+len(problems) >= maxRecipes {
			break
		}
		if strings.HasPrefix(e.Name(), ".") || !strings.HasSuffix(e.Name(), ".json") {
			continue
		}
		path := filepath.Join(s.recipeDir(), e.Name())
		r, err := s.readRecipe(path)
		if err != nil {
			problems = append(problems, Problem{Own, path, reason(err)})
			continue
		}
		list = append(list, r)
	}
	return list, problems
}

func (s *Store) readRecipe(path string) (r Recipe, err error) {
	text, err := readSmall(path, maxManifest)
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	if err != nil {
		return r, err
	}
	if r.Version != recipeVersion {
		return r, fmt.Errorf("its version is %d; this uma-serve reads version %d", r.Version, recipeVersion)
	}
	if err := CheckRecipeName(r.Name); err != nil {
		return r, err
	}
	if s.recipeFile(r.Name) != path {
		return r, fmt.Errorf("it is the file of another name than %s", r.Name)
	}
	return r, nil
}

// addRecipes puts the recipes before the models that they are made of.
func (c *Catalog) addRecipes(list []Recipe) {
	var made []Model
	for i := range list {
		made = append(made, c.made(&list[i]))
	}
	c.Models = append(made, c.Models...)
}

// made returns the model of a recipe.
func (c *Catalog) made(r *Recipe) Model {
	name, _ := ParseName(r.Name) // it was checked
	file := c.store.recipeFile(r.Name)
	m := Model{Name: name, Repo: Name{Path: name.Path}, Place: Own, Files: []string{file}, Modified: r.Created,
		Recipe: r, id: r.Name}
	text, _ := json.Marshal(r)
	m.Digest = fmt.Sprintf("sha256:%x", sha256.Sum256(text))
	if isBlob(r.From) {
		path := c.store.blobFile(r.From)
		if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() {
			m.Files, m.Bytes = []string{path}, st.Size()
		} else {
			m.Incomplete = "its file " + path + " is gone"
		}
		return m
	}
	if filepath.IsAbs(r.From) { // a file of the daemon's configuration
		if st, err := os.Stat(r.From); err == nil && st.Mode().IsRegular() {
			m.Files, m.Bytes = []string{r.From}, st.Size()
		} else {
			m.Incomplete = "its file " + r.From + " is gone"
		}
		return m
	}
	of, err := c.lookup(r.From, false)
	switch {
	case err != nil:
		m.Incomplete = fmt.Sprintf("%s, of which it is made, is not on this machine", r.From)
	case of.Incomplete != "":
		m.Incomplete = of.Incomplete
	default:
		m.Files, m.Bytes, m.Projector = of.Files, of.Bytes, of.Projector
	}
	return m
}

// MadeOf returns the names of the recipes that are made of a model.
func (c *Catalog) MadeOf(m *Model) (names []string) {
	for i := range c.Models {
		o := &c.Models[i]
		if o.Recipe == nil || m.Recipe != nil || isBlob(o.Recipe.From) ||
			filepath.IsAbs(o.Recipe.From) {
			continue
		}
		if of, err := c.lookup(o.Recipe.From, false); err == nil && of == m {
			names = append(names, o.ID())
		}
	}
	return names
}

// removeRecipe deletes a recipe, and the blob that nothing else is made of.
func (s *Store) removeRecipe(m *Model) error {
	if err := os.Remove(s.recipeFile(m.Recipe.Name)); err != nil {
		return err
	}
	_ = os.Remove(s.recipeDir()) // stays unless it is empty
	if !isBlob(m.Recipe.From) {
		return nil
	}
	others, problems := s.readRecipes(context.Background())
	if len(problems) > 0 || slices.ContainsFunc(others, func(r Recipe) bool { return r.From == m.Recipe.From }) {
		return nil // one that cannot be read now may be made of it, too
	}
	if err := os.Remove(s.blobFile(m.Recipe.From)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Lines returns the parameters as lines of a Modelfile of ollama.
func (r *Recipe) Lines() []string {
	d, _ := r.details() // without parameters that are none
	return d.Options
}

// details returns those of a recipe.
func (r *Recipe) details() (d Details, err error) {
	d = Details{Template: r.Template, System: r.System, Licenses: r.Licenses}
	if len(r.Parameters) > 0 {
		d.Options, err = options(r.Parameters)
	}
	return d, err
}
