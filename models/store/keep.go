package store

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// MayKeep returns the error for a model whose file Keep cannot keep.
func (m *Model) MayKeep() error {
	if len(m.Files) != 1 {
		return fmt.Errorf("%s has %d files, and only the file of a model that has one is kept for others", m.ID(),
			len(m.Files))
	}
	return nil
}

// Keep makes the recipes of these names, which are made of m, ones of its file: they stay when m is removed. The file
// gets a second name under its digest, so that a crash at any point leaves recipes that have their weights.
func (s *Store) Keep(ctx context.Context, c *Catalog, m *Model, recipes []string) error {
	if err := m.MayKeep(); err != nil {
		return err
	}
	sum := c.sumOf(m)
	if sum == "" {
		var err error
		if sum, err = hashFile(ctx, m.Path()); err != nil {
			return err
		}
	}
	sum, ok := ParseDigest(sum)
	if !ok {
		return fmt.Errorf("the digest of %s is %.100q", m.Path(), sum)
	}
	if err := os.MkdirAll(s.blobDir(), 0o755); err != nil {
		return err
	}
	if err := os.Link(m.Path(), s.blobFile(sum)); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	list, problems := s.readRecipes(ctx)
	if len(problems) > 0 {
		return fmt.Errorf("the model %s cannot be read: %s", problems[0].Path, problems[0].Why)
	}
	for _, r := range list {
		if !slices.ContainsFunc(recipes, func(name string) bool { return strings.EqualFold(name, r.Name) }) {
			continue
		}
		r.From = sum
		if err := s.SetRecipe(r); err != nil {
			return err
		}
	}
	return nil
}

// hashFile returns the digest of a file.
func hashFile(ctx context.Context, path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	for {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		if _, err := io.CopyN(h, f, 64<<20); err == io.EOF {
			return fmt.Sprintf("sha256:%x", h.Sum(nil)), nil
		} else if err != nil {
			return "", err
		}
	}
}
