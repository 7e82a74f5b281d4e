package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Details are the properties of a model that a place keeps beside its GGUF files.
type Details struct {
	Template string   `json:"template,omitempty"` // ollama's, in Go's template language
	System   string   `json:"system,omitempty"`
	Options  []string `json:"options,omitempty"` // "temperature 0.6", as ollama's Modelfile has them
	Licenses []string `json:"licenses,omitempty"`
}

// Details reads the files beside the model. Files that cannot be read are an error that names them; the rest is
// returned.
func (m *Model) Details() (d Details, err error) {
	var errs []error
	read := func(path string) string {
		if path == "" {
			return ""
		}
		text, err := readSmall(path, maxSmall)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %s", path, reason(err)))
		}
		return strings.ToValidUTF8(string(text), "�")
	}
	if m.Recipe != nil {
		return m.Recipe.details()
	}
	l := m.layers
	if l == nil {
		return m.record()
	}
	d.Template, d.System = read(l.template), read(l.system)
	for _, path := range l.licenses {
		d.Licenses = append(d.Licenses, read(path))
	}
	if text := read(l.params); text != "" {
		if d.Options, err = options([]byte(text)); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", l.params, err))
		}
	}
	return d, errors.Join(errs...)
}

// record reads what a download has written beside a file of the own directory, FILE.gguf.json; nothing when it has not.
func (m *Model) record() (d Details, err error) {
	if m.Place != Own {
		return d, nil
	}
	path := m.Path() + ".json"
	text, err := readSmall(path, maxManifest)
	if errors.Is(err, fs.ErrNotExist) {
		return d, nil
	}
	if err != nil {
		return d, fmt.Errorf("%s: %s", path, reason(err))
	}
	var doc struct {
		Template, System, Licence string
		Parameters                json.RawMessage
	}
	if err := json.Unmarshal(text, &doc); err != nil {
		return d, fmt.Errorf("%s: it does not describe a download: %w", path, err)
	}
	d.Template, d.System = doc.Template, doc.System
	if doc.Licence != "" {
		d.Licenses = []string{doc.Licence}
	}
	if len(doc.Parameters) > 0 {
		if d.Options, err = options(doc.Parameters); err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
	}
	return d, err
}

// options are parameters of ollama as lines of a Modelfile.
func options(text []byte) (lines []string, err error) {
	var params map[string]any
	if err := json.Unmarshal(text, &params); err != nil {
		return nil, fmt.Errorf("it does not hold parameters: %w", err)
	}
	for _, key := range slices.Sorted(maps.Keys(params)) {
		values, isList := params[key].([]any)
		if !isList {
			values = []any{params[key]}
		}
		for _, v := range values {
			lines = append(lines, fmt.Sprintf("%s %v", key, v))
		}
	}
	return lines, nil
}

// ErrForeign: a model belongs to another program; the error says the command that removes it.
var ErrForeign = errors.New("uma-serve removes only models of its models directory")

// MayRemove returns the error for a model that Remove does not delete, which wraps ErrForeign; nil: it does.
func (s *Store) MayRemove(m *Model) error {
	if m.Place != Own {
		return fmt.Errorf("model %s: %w; this one is %s's: %s", m.ID(), ErrForeign, m.Place, m.removal())
	}
	return nil
}

// Remove deletes the files of a model of the own directory, what is beside them for it alone, and the folders that
// are empty then. The error wraps ErrForeign for a model of another place.
func (s *Store) Remove(m *Model) error {
	if err := s.MayRemove(m); err != nil {
		return err
	}
	if m.Recipe != nil {
		return s.removeRecipe(m)
	}
	top, err := filepath.EvalSymlinks(s.dir)
	if err != nil {
		return err
	}
	var errs []error
	files := m.Files
	if m.Projector != "" && s.alone(m) {
		files = append(slices.Clip(files), m.Projector)
	}
	for _, path := range files {
		// A folder may be a link into another program's.
		dir, err := filepath.EvalSymlinks(filepath.Dir(path))
		if rel, rerr := filepath.Rel(top, dir); err == nil && (rerr != nil || !filepath.IsLocal(rel)) {
			err = fmt.Errorf("%s: %w: a link leads to it, out of %s", path, ErrForeign, s.dir)
		}
		if err == nil {
			err = os.Remove(path)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, beside := range besides {
			if err := os.Remove(path + beside); err != nil && !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
		for dir != top && os.Remove(dir) == nil { // a folder that is not empty stays
			dir = filepath.Dir(dir)
		}
	}
	return errors.Join(errs...)
}

// alone reports whether no other model can use m's projector: the folders of both have no other model.
func (s *Store) alone(m *Model) bool {
	for _, dir := range []string{filepath.Dir(m.Projector), filepath.Dir(m.Path())} {
		list, err := os.ReadDir(dir)
		if err != nil {
			return false
		}
		for _, e := range list {
			path := filepath.Join(dir, e.Name())
			if e.IsDir() || isGGUF(e.Name()) && IsModel(e.Name()) && !slices.Contains(m.Files, path) {
				return false
			}
		}
	}
	return true
}

// besides end the names of what a download leaves beside a file.
var besides = []string{".json", ".lock", ".state", ".part"}

// removal is the command that removes a model from another program's folder.
func (m *Model) removal() string {
	switch m.Place {
	case InOllama:
		return "ollama rm " + m.ID()
	case Hub:
		return "hf cache rm model/" + m.Repo.Path
	case LMStudio:
		return "delete it in LM Studio under My Models"
	}
	return "rm " + strings.Join(m.Files, " ")
}
